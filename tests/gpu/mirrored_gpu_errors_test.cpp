// How MirroredStrategy handles GPUs that are missing, out of memory or failing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/gpu/gpu_test_support.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/training/metrics/metrics.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MirroredGpuErrors, AnUnknownGpuIsNamedWithThoseThatThereAre) {
  LOCKSTEP_NEEDS_GPUS(1);
  EXPECT_THAT([] { MirroredStrategy({"gpu:77"}); },
              testing::ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("gpu:77"), HasSubstr("gpu:0"))));
}

TEST(MirroredGpuErrors, ReplicasPerDeviceMustBeOneOrMore) {
  EXPECT_THAT([] { MirroredStrategy({"cpu:0"}, {.replicas_per_device = 0}); },
              testing::ThrowsMessage<InvalidArgument>(HasSubstr("1 or more replicas a device, but got 0")));
}

/// Expects `call` to throw, within a second (far below the strategies' timeouts), an `Error` whose message
/// contains `parts`.
template <typename Error, typename Call, typename... Parts>
void expect_soon(const Call& call, const Parts&... parts) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(call, testing::ThrowsMessage<Error>(AllOf(HasSubstr(parts)...)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

/// Limits a fake GPU's memory; real GPUs have less than a tebibyte.
class MemoryLimit {
 public:
#ifdef LOCKSTEP_WITH_CUDA
  ~MemoryLimit() {}
#else
  MemoryLimit() {
    fake_gpu::limit_memory(0, int64_t{1} << 30);
  }
  ~MemoryLimit() {
    fake_gpu::limit_memory(0, -1);
  }
#endif
};

torch::Tensor too_much_memory(torch::Device device) {
  return torch::empty({int64_t{1} << 40}, torch::dtype(torch::kByte).device(device));
}

TEST(MirroredGpuErrors, OutOfMemoryNamesTheReplicaAndTheBytesAndReleasesTheOthers) {
  LOCKSTEP_NEEDS_GPUS(1);
  MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
  {
    const MemoryLimit limit;
    const auto step = [](ReplicaContext& replica) {
      if (replica.replica_id() == 1) too_much_memory(replica.device());
      replica.all_reduce(ReduceOp::kSum, torch::ones({1}, replica.device()));
    };
    expect_soon<OutOfMemory>([&] { strategy.run(step); },
                             "[MirroredStrategy] replica 1 on gpu:0 is out of memory", "wanted 1024.00 GiB",
                             "B were free", "a smaller batch needs less");
  }
  const auto sums = strategy.run([](ReplicaContext& replica) {
    return replica.all_reduce(ReduceOp::kSum, torch::ones({1}, replica.device()));
  });
  EXPECT_EQ(sums.local_values()[1].item<double>(), 2) << "the strategy stays usable";
}

TEST(MirroredGpuErrors, OutOfMemoryInScopeNamesTheReplica) {
  LOCKSTEP_NEEDS_GPUS(1);
  MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
  const MemoryLimit limit;
  const auto make = [](ReplicaContext& replica) {
    return replica.replica_id() == 1 ? too_much_memory(replica.device()) : torch::ones({1});
  };
  EXPECT_THAT([&] { strategy.scope(make); },
              testing::ThrowsMessage<OutOfMemory>(
                  HasSubstr("replica 1 on gpu:0 is out of memory: it wanted 1024.00 GiB")));
}

TEST(MirroredGpuErrors, OutOfMemoryWhileABatchIsMadeNamesTheReplicaItIsFor) {
  LOCKSTEP_NEEDS_GPUS(1);
  MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
  const MemoryLimit limit;
  const auto numbers = torch::arange(4, torch::kFloat);
  auto batches = strategy.distribute_dataset(TensorDataset(numbers, numbers), {.global_batch_size = 4})
                     .map([](const Example& shard) {
                       if (shard.data[0].item<double>() > 1) too_much_memory(shard.data.device());
                       return shard;
                     });
  EXPECT_THAT([&] { batches.begin(); },
              testing::ThrowsMessage<OutOfMemory>(HasSubstr("[map] replica 1 on gpu:0 is out of memory")));
}

#ifndef LOCKSTEP_WITH_CUDA
// After a real GPU has failed, the process cannot use it any more.
class FailedDevice {
 public:
  explicit FailedDevice(int device) : device_(device) { fake_gpu::fail_device(device_, true); }
  ~FailedDevice() { fake_gpu::fail_device(device_, false); }

 private:
  const int device_;
};

TEST(MirroredGpuErrors, ADeviceThatFailsIsNamedAndTheOtherReplicasAreReleased) {
  MirroredStrategy strategy({"gpu:0", "gpu:1"},
                            {.cross_device_ops = make_cross_device_ops("hierarchical_copy")});
  const auto step = [](ReplicaContext& replica, bool fails) {
    const auto value = torch::ones({4}, replica.device());
    std::optional<FailedDevice> failed;
    if (fails && replica.replica_id() == 1) failed.emplace(1);
    return replica.all_reduce(ReduceOp::kSum, value + 1);
  };
  for (int round = 0; round < 3; ++round) {
    expect_soon<DeviceFailure>([&] { strategy.run(step, true); }, "[MirroredStrategy] replica 1 on gpu:1",
                               "illegal memory access");
    EXPECT_EQ(strategy.run(step, false).local_values()[0].sum().item<double>(), 16) << "once it is back";
  }
}

// Work finishes later than it is launched, so the first reader of its results may be the one that fails.
TEST(MirroredGpuErrors, ADeviceThatFailsAfterTheRunIsNamedByWhoeverReadsResults) {
  MirroredStrategy strategy({"gpu:0", "gpu:1"},
                            {.cross_device_ops = make_cross_device_ops("hierarchical_copy")});
  auto metric = strategy.scope([](ReplicaContext&) { return Mean(); });
  const auto values = strategy.run(
      [](ReplicaContext& replica, Mean& mean) {
        const auto value = torch::ones({2, 2}, replica.device());
        mean.update(value);
        return value;
      },
      metric);
  const FailedDevice failed(1);
  const auto names_replica_1 = testing::ThrowsMessage<DeviceFailure>(HasSubstr("replica 1 on gpu:1"));
  EXPECT_THAT([&] { result(metric); }, names_replica_1);
  EXPECT_THAT([&] { strategy.gather(values); }, names_replica_1);
  EXPECT_THAT([&] { strategy.reduce(ReduceOp::kSum, values, 0); }, names_replica_1);
  EXPECT_THAT([&] { strategy.reduce(ReduceOp::kSum, values); }, names_replica_1);
  EXPECT_THAT([] { MirroredStrategy({"gpu:0", "gpu:1"}); }, names_replica_1);
}

// The sums are under way on a stream that no replica has waited for.
TEST(MirroredGpuErrors, TheSumsOfAFailedRunAreDoneBeforeTheirMemoryIsUsedAgain) {
  forget_races();
  MirroredStrategy strategy(
      {"gpu:0"}, {.replicas_per_device = 2, .buckets = {.first_bucket_bytes = 8, .bucket_bytes = 8}});
  auto model = strategy.scope([](ReplicaContext&) { return make_tanh_net(); });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return momentum_sgd()(model[replica]->parameters()); });
  std::barrier after_backward(2);
  const auto step = [&](ReplicaContext& replica, TanhNet& net, std::unique_ptr<torch::optim::Optimizer>& sgd,
                        bool fails) {
    sgd->zero_grad();
    net(torch::ones({2, 6}, torch::dtype(torch::kDouble).device(replica.device()))).sum().backward();
    after_backward.arrive_and_wait();
    if (fails) throw std::domain_error("planted");
    replica.apply_gradients(*sgd);
  };
  strategy.run(step, model, optimizer, false);
  for (int round = 0; round < 3; ++round) {
    EXPECT_THROW(strategy.run(step, model, optimizer, true), std::domain_error);
    strategy.run(step, model, optimizer, false);
  }
  expect_no_races();
}
#endif

}  // namespace
}  // namespace lockstep
