// Streams of several workers that draw their own batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "lockstep/strategies/nn/losses.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

/// A pipeline of `count` batches of two rows of ones.
auto pipeline_of(int count) {
  return [left = count]() mutable -> std::optional<torch::Tensor> {
    if (left-- <= 0) return std::nullopt;
    return torch::ones({2, 1}, torch::kDouble);
  };
}

TEST(MultiWorkerStreams, FinishesStreamsOfDifferentLengthsTogether) {
  std::vector<std::vector<int64_t>> sizes(2);
  std::vector<double> sums(2);
  expect_no_worker_failed(run_strategies({1, 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto worker = static_cast<size_t>(strategy.cluster_resolver()->rank());
    // Worker 0 has five batches for its replica, worker 1 three for its two.
    auto batches = strategy.distribute_datasets_from_function([](const InputContext& context) {
      EXPECT_EQ(context.num_input_pipelines, 2);
      return pipeline_of(context.input_pipeline_id == 0 ? 5 : 3);
    });
    for (const auto& batch : batches) {
      sizes[worker].push_back(batch.batch_sizes()->global);
      const auto losses = strategy.run(
          [](ReplicaContext& replica, const torch::Tensor& rows) {
            // The context knows the global batch size, which makes the sum over the batch a mean.
            return compute_average_loss(replica, rows.squeeze(1));
          },
          batch);
      sums[worker] += strategy.reduce(ReduceOp::kSum, losses).item<double>();
    }
  }));
  EXPECT_THAT(sizes[0], testing::ElementsAre(6, 4, 2, 2, 2));
  EXPECT_EQ(sizes[1], sizes[0]);
  for (const double sum : sums) EXPECT_DOUBLE_EQ(sum, 5);  // the mean of ones is 1 in each step
}

TEST(MultiWorkerStreams, ResumesStreamsBehindTheEndOfAShortOne) {
  std::vector<std::vector<int64_t>> sizes(2);
  std::vector<double> sums(2);
  expect_no_worker_failed(run_strategies({1, 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto worker = static_cast<size_t>(strategy.cluster_resolver()->rank());
    // Worker 0's stream has five steps, worker 1's two.
    auto batches = strategy.distribute_datasets_from_function(
        [](const InputContext& context) { return pipeline_of(context.input_pipeline_id == 0 ? 5 : 3); });
    batches.restore({2, 3});
    for (int epoch = 2; epoch < 4; ++epoch) {
      EXPECT_EQ(batches.position().epoch, epoch);
      for (const auto& batch : batches) {
        sizes[worker].push_back(batch.batch_sizes()->global);
        for (const auto& shard : batch.local_values()) EXPECT_EQ(shard.size(1), 1);
        const auto losses = strategy.run(
            [](ReplicaContext& replica, const torch::Tensor& rows) {
              return compute_average_loss(replica, rows.squeeze(1));
            },
            batch);
        sums[worker] += strategy.reduce(ReduceOp::kSum, losses).item<double>();
      }
    }
  }));
  EXPECT_THAT(sizes[0], testing::ElementsAre(2, 2, 6, 4, 2, 2, 2));
  EXPECT_EQ(sizes[1], sizes[0]);
  for (const double sum : sums) EXPECT_DOUBLE_EQ(sum, 7);  // the mean of ones is 1 in each step
}

TEST(MultiWorkerStreams, RefusesAStreamWithoutASingleBatchWhereOthersHaveSome) {
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    auto batches = strategy.distribute_datasets_from_function(
        [](const InputContext& context) { return pipeline_of(context.input_pipeline_id == 0 ? 1 : 0); });
    for (const auto& batch : batches) strategy.reduce(ReduceOp::kSum, PerReplica<torch::Tensor>(batch));
  });
  EXPECT_THAT(text_of(errors[1]), HasSubstr("worker 1's pipeline has not a single batch"));
  EXPECT_TRUE(is_a<PeerLost>(errors[0])) << text_of(errors[0]);
}

}  // namespace
}  // namespace lockstep
