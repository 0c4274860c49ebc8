// Mistakes that new users make, each chosen by the value of LOCKSTEP_MUST_NOT_COMPILE. The first line of the
// compiler's error states the rule.
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

using namespace lockstep;
using torch::nn::Linear;

struct Rows {
  std::optional<size_t> size() const { return 4; }
  Example get_batch(c10::ArrayRef<size_t> rows) const {
    return {torch::zeros({static_cast<int64_t>(rows.size()), 2}), torch::zeros({})};
  }
};

struct Numbers : torch::data::datasets::Dataset<Numbers> {
  Example get(size_t) override { return {}; }
  std::optional<size_t> size() const override { return 4; }
};

struct Result {
  torch::Tensor loss;
};

void train(MirroredStrategy& strategy, [[maybe_unused]] const torch::Tensor& tensor) {
  auto model = strategy.scope([](ReplicaContext&) { return Linear(2, 2); });
  auto batches = strategy.distribute_dataset(Rows(), DistributeOptions{.global_batch_size = 4});
  for (const auto& batch : batches) {
    strategy.run([](ReplicaContext&, Linear&, const Example&) {}, model, batch);
#if LOCKSTEP_MUST_NOT_COMPILE == 1
    strategy.run([](Linear&, const Example&) {}, model, batch);
#elif LOCKSTEP_MUST_NOT_COMPILE == 2
    strategy.run([](ReplicaContext&, Linear&, Example&) {}, model, batch);
#elif LOCKSTEP_MUST_NOT_COMPILE == 3
    strategy.run([](ReplicaContext&, Linear&) {}, model, batch);
#elif LOCKSTEP_MUST_NOT_COMPILE == 4
    strategy.run([](ReplicaContext&, const Example&, Linear&) {}, model, batch);
#endif
  }
  auto results = strategy.run([](ReplicaContext&) { return Result(); });
  strategy.reduce(ReduceOp::kSum, results.map([](const Result& result) { return result.loss; }));
  torch::save(model.primary(), "linear.pt");
#if LOCKSTEP_MUST_NOT_COMPILE == 5
  strategy.distribute_dataset(tensor, {.global_batch_size = 4});
#elif LOCKSTEP_MUST_NOT_COMPILE == 6
  strategy.distribute_dataset(Rows(), DistributeOptions{.global_batch_szie = 4});
#elif LOCKSTEP_MUST_NOT_COMPILE == 7
  auto other = strategy.scope([] { return Linear(2, 2); });
#elif LOCKSTEP_MUST_NOT_COMPILE == 8
  Linear plain(2, 2);
  auto other = strategy.scope([&](ReplicaContext&) -> Linear& { return plain; });
#elif LOCKSTEP_MUST_NOT_COMPILE == 9
  strategy.reduce(ReduceOp::kSum, results);
#elif LOCKSTEP_MUST_NOT_COMPILE == 10
  torch::save(model, "linear.pt");
#elif LOCKSTEP_MUST_NOT_COMPILE == 11
  strategy.distribute_datasets_from_function([] { return [] { return std::optional(Example()); }; });
#elif LOCKSTEP_MUST_NOT_COMPILE == 12
  strategy.distribute_datasets_from_function([&](const InputContext&) { return tensor; });
#elif LOCKSTEP_MUST_NOT_COMPILE == 13
  strategy.distribute_dataset(torch::data::make_data_loader(Numbers()), {.global_batch_size = 4});
#elif LOCKSTEP_MUST_NOT_COMPILE == 14
  strategy.distribute_dataset(*torch::data::make_data_loader(Numbers()), {.global_batch_size = 4});
#elif LOCKSTEP_MUST_NOT_COMPILE == 15
  auto other = strategy.scope([made = 0](ReplicaContext&) mutable { return Linear(2, ++made); });
#endif
}
