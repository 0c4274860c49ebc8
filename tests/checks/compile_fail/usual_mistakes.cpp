// Mistakes that new users make, each under its name. The first line of the compiler's error states the rule.
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/mirrored/tpu_strategy.h"

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
#ifdef LOCKSTEP_MUST_NOT_COMPILE
    // offence: function_without_context
    strategy.run([](Linear&, const Example&) {}, model, batch);
    // offence: batch_not_constant
    strategy.run([](ReplicaContext&, Linear&, Example&) {}, model, batch);
    // offence: too_few_parameters
    strategy.run([](ReplicaContext&, Linear&) {}, model, batch);
    // offence: parameters_in_another_order
    strategy.run([](ReplicaContext&, const Example&, Linear&) {}, model, batch);
#endif
  }
  auto results = strategy.run([](ReplicaContext&) { return Result(); });
  strategy.reduce(ReduceOp::kSum, results.map([](const Result& result) { return result.loss; }));
  torch::save(model.primary(), "linear.pt");
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  // offence: tensor_as_dataset
  strategy.distribute_dataset(tensor, {.global_batch_size = 4});
  // offence: misspelt_option
  strategy.distribute_dataset(Rows(), DistributeOptions{.global_batch_szie = 4});
  // offence: factory_without_context
  strategy.scope([] { return Linear(2, 2); });
  // offence: factory_of_references
  Linear plain(2, 2);
  strategy.scope([&](ReplicaContext&) -> Linear& { return plain; });
  // offence: reduced_struct
  strategy.reduce(ReduceOp::kSum, results);
  // offence: saved_mirrored
  torch::save(model, "linear.pt");
  // offence: pipeline_without_context
  strategy.distribute_datasets_from_function([] { return [] { return std::optional(Example()); }; });
  // offence: no_pipeline
  strategy.distribute_datasets_from_function([&](const InputContext&) { return tensor; });
  // offence: data_loader_as_dataset
  strategy.distribute_dataset(torch::data::make_data_loader(Numbers()), {.global_batch_size = 4});
  // offence: dereferenced_loader_as_dataset
  strategy.distribute_dataset(*torch::data::make_data_loader(Numbers()), {.global_batch_size = 4});
  // offence: mutable_factory
  strategy.scope([made = 0](ReplicaContext&) mutable { return Linear(2, ++made); });
  // offence: split_tensor
  TPUStrategy().split_to_logical_devices(tensor, 2);
#endif
}
