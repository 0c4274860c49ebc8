// Training on streams that are cut over several workers.
#include <gtest/gtest.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>

#include "lockstep/strategies/input/sharded_stream.h"
#include "lockstep/tests/support/number_stream.h"
#include "lockstep/tests/support/worker_training.h"

namespace lockstep {
namespace {

/// Gives the examples one after another.
class ExampleStream {
 public:
  explicit ExampleStream(Example examples) : examples_(std::move(examples)) {}
  std::optional<Example> get_batch(size_t count) {
    const int64_t begin = next_;
    next_ = std::min(next_ + static_cast<int64_t>(count), examples_.data.size(0));
    if (begin == next_) return std::nullopt;
    return BatchTraits<Example>::slice(examples_, begin, next_);
  }

 private:
  Example examples_;
  int64_t next_ = 0;
};

TEST(ShardedStreamByData, TrainsAsOneDevice) {
  const auto data = examples_of_three_classes();
  const auto start = initial_values();
  const auto expected = trained_alone<TanhNet>([&] { return tanh_net_of(start); }, data, momentum_sgd());
  const auto distribute = [&](Strategy& strategy) {
    return strategy.distribute_dataset(
        [&](const InputContext&) { return ExampleStream(data); },
        {.global_batch_size = kBatchSize, .auto_shard = AutoShardPolicy::kData});
  };
  for (const std::vector<int>& layout :
       {std::vector{1, 1}, std::vector{2, 2}, std::vector{1, 3}, std::vector{1, 1, 1}}) {
    const auto trained =
        trained_by_workers({.num_replicas = layout, .start = start, .distribute = distribute});
    EXPECT_LE(largest_difference(trained, expected), 1e-12);
  }
}

TEST(ShardedStreamByFile, TakesTheGradientOverAllExamplesOfAStep) {
  constexpr double kRate = 0.01, kStart = 0.5;
  // Each worker draws 2 of 4: worker 1's stream ends after one and a half batches, worker 0's after three.
  const std::vector<Numbers> steps{{1, 2, 7, 8}, {3, 4, 9}, {5, 6}};
  // The loss is the mean of (w x - 1)^2.
  double weight = kStart;
  for (const auto& numbers : steps) {
    double gradient = 0;
    for (const auto x : numbers)
      gradient += 2 * (weight * static_cast<double>(x) - 1) * static_cast<double>(x);
    weight -= kRate * gradient / static_cast<double>(numbers.size());
  }
  for (const std::vector<int>& layout : {std::vector{1, 1}, std::vector{2, 2}}) {
    expect_no_worker_failed(run_strategies(layout, [&](MultiWorkerMirroredStrategy& strategy) {
      auto model = strategy.scope([](ReplicaContext&) {
        torch::nn::Linear linear(torch::nn::LinearOptions(1, 1).bias(false));
        linear->to(torch::kDouble);
        torch::nn::init::constant_(linear->weight, kStart);
        return linear;
      });
      auto optimizer = strategy.scope(
          [&](ReplicaContext& replica) { return torch::optim::SGD(model[replica]->parameters(), kRate); });
      auto batches = strategy.distribute_dataset(
          [](const InputContext& context) { return NumberStream(numbers_in_files(context.files)); },
          {.global_batch_size = 4, .auto_shard = AutoShardPolicy::kFile, .files = {"1+6", "7+3"}});
      for (const auto& batch : batches) {
        strategy.run(
            [](ReplicaContext& replica, torch::nn::Linear& linear, torch::optim::SGD& sgd,
               const Example& shard) {
              sgd.zero_grad();
              compute_average_loss(replica, (linear->forward(shard.data) - 1).square().squeeze(1)).backward();
              replica.apply_gradients(sgd);
            },
            model, optimizer, batch);
      }
      EXPECT_NEAR(model.primary()->weight.item<double>(), weight, 1e-12);
    }));
  }
}

}  // namespace
}  // namespace lockstep
