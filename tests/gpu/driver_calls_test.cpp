// Counts what a step asks the driver for, on fake GPUs. --gtest_output=json:FILE writes the counts.
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/sync_batch_norm.h"
#include "lockstep/tests/gpu/fake_gpu.h"
#include "lockstep/tests/gpu/gpu_test_support.h"
#include "lockstep/tests/gpu/small_images.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep {
namespace {

using fake_gpu::DriverCalls;

constexpr int kLayers = few_if_sanitized(30, 10);
constexpr int64_t kParameters = 2 * kLayers;
constexpr int kSettled = 8;  // steps after which all layouts and the allocator's cache are final

/// Many small layers, as in a convolutional net with normalization.
struct DeepNetImpl : torch::nn::Module {
  explicit DeepNetImpl(bool is_normed = false) {
    for (int i = 0; i < kLayers; ++i) {
      layers->push_back(torch::nn::Linear(10, 10));
      if (is_normed) layers->push_back(SyncBatchNorm(10));
    }
    register_module("layers", layers);
  }
  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }

  torch::nn::Sequential layers;
};
TORCH_MODULE(DeepNet);

struct Setting {
  int num_gpus = 1;
  std::string ops = "auto";
  std::optional<double> clip_norm;
  bool is_normed = false;
};

class Training {
 public:
  explicit Training(const Setting& setting)
      : setting_(setting),
        strategy_(gpus(setting.num_gpus), {.cross_device_ops = ops_named(setting.ops)}),
        model_(strategy_.scope([&](ReplicaContext&) { return DeepNet(setting.is_normed); })),
        sgd_(strategy_.scope(
            [&](ReplicaContext& replica) { return FusedSgd(model_[replica]->parameters(), 0.1); })) {}

  Strategy& strategy() { return strategy_; }

  template <typename Batch>
  void step(const Batch& batch) {
    strategy_.run(
        [&](ReplicaContext& replica, DeepNet& own, FusedSgd& optimizer, const Example& shard) {
          optimizer.zero_grad();
          own(shard.data).square().sum().backward();
          replica.apply_gradients(optimizer, {.clip_norm = setting_.clip_norm});
        },
        model_, sgd_, batch);
  }

 private:
  static std::vector<std::string> gpus(int count) {
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) names.push_back("gpu:" + std::to_string(i));
    return names;
  }

  const Setting setting_;
  MirroredStrategy strategy_;
  Mirrored<DeepNet> model_;
  Mirrored<FusedSgd> sgd_;
};

void record(const DriverCalls& calls) {
  testing::Test::RecordProperty("kernels", std::to_string(calls.kernels));
  testing::Test::RecordProperty("copies", std::to_string(calls.copies));
  testing::Test::RecordProperty("event_records", std::to_string(calls.event_records));
  testing::Test::RecordProperty("event_waits", std::to_string(calls.event_waits));
  testing::Test::RecordProperty("streams_recorded", std::to_string(calls.streams_recorded));
  testing::Test::RecordProperty("host_waits", std::to_string(fake_gpu::host_waits().size()));
}

int64_t all(const DriverCalls& calls) {
  return calls.kernels + calls.copies + calls.event_records + calls.event_waits;
}

/// Returns the calls of one step of all replicas, once all is settled.
DriverCalls calls_of_a_step(const Setting& setting) {
  Training training(setting);
  const auto batch = training.strategy().distribute_values_from_function([](const ValueContext& context) {
    const torch::Device gpu(torch::kCUDA, static_cast<c10::DeviceIndex>(context.replica_id_in_sync_group));
    return Example(torch::ones({4, 10}).to(gpu), torch::zeros({4}).to(gpu));
  });
  for (int i = 0; i < kSettled; ++i) training.step(batch);
  fake_gpu::forget();
  training.step(batch);
  const auto calls = fake_gpu::driver_calls();
  record(calls);
  return calls;
}

// Measuring and scaling each gradient by itself would take 2 * kParameters kernels.
TEST(DriverCalls, OfClippingDoNotGrowWithTheNumberOfParameters) {
  const auto plain = calls_of_a_step({});
  const auto clipped = calls_of_a_step({.clip_norm = 0.1});
  EXPECT_GT(clipped.kernels, plain.kernels);
  EXPECT_LE(clipped.kernels - plain.kernels, 12);
}

TEST(DriverCalls, GradientsAreCopiedIntoABucketAtOnce) {
  const auto alone = calls_of_a_step({});
  const auto summed = calls_of_a_step({.num_gpus = 2, .ops = "nccl"});
  // On each GPU: the copy into the bucket and NCCL's kernel. The first layout has one bucket, too.
  EXPECT_EQ(summed.copies, 0);
  EXPECT_EQ(summed.kernels, 2 * (alone.kernels + 2));
}

// A list of gathered tensors would be copied on each GPU, once for each of the eight.
TEST(DriverCalls, OfSyncBatchNormDoNotCopyWhatIsGathered) {
  constexpr int kGpus = few_if_sanitized(8, 3);
  // combine() copies two parts of the statistics, and converts the counts.
  EXPECT_EQ(calls_of_a_step({.num_gpus = kGpus, .ops = "nccl", .is_normed = true}).copies,
            3 * kLayers * kGpus);
}

TEST(DriverCalls, OfSumsByCopiesOnEightGpus) {
  const auto alone = calls_of_a_step({});
  constexpr int kGpus = few_if_sanitized(8, 3);
  const auto summed = calls_of_a_step({.num_gpus = kGpus, .ops = "hierarchical_copy"});
  EXPECT_LE(all(summed) - kGpus * all(alone), 1000);
}

// After the first steps everything that a step needs is in the allocator's cache.
TEST(DriverCalls, OfASettledStepAllocateNothing) {
  EXPECT_EQ(calls_of_a_step({}).allocations, 0);
  EXPECT_EQ(calls_of_a_step({.num_gpus = 2, .ops = "nccl"}).allocations, 0);
}

// Recording the consumer's stream for each tensor would make the allocator record an event for each.
TEST(DriverCalls, OfABatchDoNotRecordStreamsOfItsTensors) {
  Training training({});
  const TensorDataset rows(torch::ones({80, 10}), torch::zeros({80}));
  auto batches = training.strategy().distribute_dataset(rows, {.global_batch_size = 4});
  auto batch = batches.begin();
  for (int i = 0; i < kSettled; ++i, ++batch) training.step(*batch);
  fake_gpu::forget();
  training.step(*batch);
  ++batch;
  const auto calls = fake_gpu::driver_calls();
  record(calls);
  EXPECT_EQ(calls.streams_recorded, 0);
}

}  // namespace
}  // namespace lockstep
