// CudaGraph with an input pipeline that works on the same GPU.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/gpu/gpu_test_support.h"
#include "lockstep/tests/gpu/small_images.h"

namespace lockstep {
namespace {

/// Adds noise on the GPU, from its default generator, slowly.
struct NoisyRows : TensorDataset {
  using TensorDataset::TensorDataset;
  Example device_transform(Example batch) const {
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      batch.data = batch.data + 0 * torch::rand_like(batch.data);
    }
    return batch;
  }
};

torch::Tensor sum_of(ReplicaContext&, const Example& batch) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // in calls only, so also in the capture
  return batch.data.sum();
}

TEST(CudaGraphInput, MayDrawRandomNumbersOnTheGpuWhileAStepIsCaptured) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  MirroredStrategy strategy({"gpu:0"});
  const NoisyRows rows(torch::ones({40, 3}), torch::zeros({40}));
  auto batches = strategy.distribute_dataset(rows, {.global_batch_size = 4, .prefetch = 4});
  CudaGraph graph(sum_of, {.warm_up_runs = 1});
  for (const auto& batch : batches) EXPECT_EQ(strategy.run(graph, batch).local_values()[0].item<float>(), 12);
  EXPECT_EQ(graph.statistics().captures, 1);
  EXPECT_EQ(graph.statistics().replays, 8);
  expect_no_races();
}

}  // namespace
}  // namespace lockstep
