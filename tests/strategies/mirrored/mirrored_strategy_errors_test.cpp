// MirroredStrategy with a failing replica or an invalid device.
#include <gtest/gtest.h>

#include <stdexcept>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

namespace lockstep {
namespace {

TEST(MirroredStrategy, AnErrorInOneReplicaReleasesTheOthersAndLeavesTheStrategyUsable) {
  MirroredStrategy strategy(cpu_devices(3), {.intra_op_threads = 1});
  const auto failing = [](ReplicaContext& replica) {
    if (replica.replica_id() == 1) throw std::domain_error("planted");
    return replica.all_reduce(ReduceOp::kSum, torch::ones({2}));
  };
  EXPECT_THROW(strategy.run(failing), std::domain_error);
  auto sums = strategy.run([](ReplicaContext& replica) {
    return replica.all_reduce(ReduceOp::kSum, torch::full({1}, replica.replica_id() + 1.0));
  });
  for (const auto& sum : sums.local_values()) EXPECT_EQ(sum.item<double>(), 6.0);
}

TEST(MirroredStrategy, AReplicaThatReturnsWithoutJoiningEndsTheOthersWaits) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  EXPECT_THROW(strategy.run([](ReplicaContext& replica) {
    if (replica.replica_id() == 0) replica.all_reduce_(ReduceOp::kSum, torch::ones({2}));
  }),
               CollectiveAborted);
}

TEST(MirroredStrategy, RefusesUnknownAndRepeatedDevicesByName) {
  EXPECT_THROW(MirroredStrategy({"gpu:x"}), InvalidArgument);
  EXPECT_THROW(MirroredStrategy({"gpu:99"}), InvalidArgument);
  EXPECT_THROW(MirroredStrategy({"cpu:0", "/device:CPU:0"}), InvalidArgument);
  EXPECT_THROW(MirroredStrategy({""}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
