// How long replicas wait for each other, as ReplicaContext::seconds_waited() reports it.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <thread>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/sync_batch_norm.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep {
namespace {

constexpr double kLateness = 0.2;

/// Makes replica 1 kLateness seconds late.
void be_late(ReplicaContext& replica) {
  if (replica.replica_id() == 1) std::this_thread::sleep_for(std::chrono::duration<double>(kLateness));
}

/// Returns how long each replica waited in one run of `fn`, after a first run that did the one-time set-up.
template <typename Fn>
std::vector<double> waits_of(Strategy& strategy, const Fn& fn) {
  const auto waited = [](ReplicaContext& replica) { return replica.seconds_waited(); };
  strategy.run([&](ReplicaContext& replica) { fn(replica); });
  const auto before = strategy.run(waited).local_values();
  strategy.run([&](ReplicaContext& replica) {
    be_late(replica);
    fn(replica);
  });
  auto waits = strategy.run(waited).local_values();
  for (size_t i = 0; i < waits.size(); ++i) waits[i] -= before[i];
  return waits;
}

/// The punctual replica waits for the late one, which waits for nobody.
void expect_waits_for_the_late_one(const std::vector<double>& waits) {
  ASSERT_EQ(waits.size(), 2U);
  EXPECT_GT(waits[0], kLateness * 0.8);
  EXPECT_LT(waits[1], kLateness * 0.5);
}

class WaitingTime : public testing::Test {
 protected:
  MirroredStrategy strategy_{cpu_devices(2), {.intra_op_threads = 1}};
};

TEST_F(WaitingTime, CountsTheWaitForTheSumsOfGradients) {
  auto model = strategy_.scope([](ReplicaContext&) { return torch::nn::Linear(3, 2); });
  auto optimizer =
      strategy_.scope([&](ReplicaContext& replica) { return FusedSgd(model[replica]->parameters(), 0.1); });
  expect_waits_for_the_late_one(waits_of(strategy_, [&](ReplicaContext& replica) {
    optimizer[replica].zero_grad();
    model[replica]->forward(torch::ones({4, 3})).sum().backward();
    replica.apply_gradients(optimizer[replica]);
  }));
  expect_waits_for_the_late_one(waits_of(strategy_, [&](ReplicaContext& replica) {
    optimizer[replica].zero_grad();
    model[replica]->forward(torch::ones({4, 3})).sum().backward();
    replica.reduce_gradients(optimizer[replica]);
  }));
}

TEST_F(WaitingTime, IsToldBetweenRunsToo) {
  const auto wait = [](ReplicaContext& replica) {
    be_late(replica);
    return replica.sum_on_host(1);
  };
  strategy_.run(wait);
  const auto inside =
      strategy_.run([](ReplicaContext& replica) { return replica.seconds_waited(); }).local_values();
  EXPECT_EQ(strategy_.extended().seconds_waited(), inside);
  EXPECT_GT(inside[0], kLateness * 0.8);
}

TEST_F(WaitingTime, CountsTheWaitInEveryCollective) {
  const auto ones = torch::ones({2});
  expect_waits_for_the_late_one(
      waits_of(strategy_, [&](ReplicaContext& replica) { replica.all_reduce(ReduceOp::kSum, ones); }));
  expect_waits_for_the_late_one(waits_of(
      strategy_, [&](ReplicaContext& replica) { replica.all_reduce_(ReduceOp::kSum, torch::ones({2})); }));
  expect_waits_for_the_late_one(
      waits_of(strategy_, [&](ReplicaContext& replica) { replica.all_gather(ones); }));
  expect_waits_for_the_late_one(
      waits_of(strategy_, [](ReplicaContext& replica) { replica.broadcast_(torch::ones({2}), 1); }));
  expect_waits_for_the_late_one(waits_of(strategy_, [](ReplicaContext& replica) { replica.sum_on_host(1); }));
}

TEST_F(WaitingTime, CountsTheWaitOfSyncBatchNorm) {
  auto norm = strategy_.scope([](ReplicaContext&) { return SyncBatchNorm(3); });
  expect_waits_for_the_late_one(waits_of(strategy_, [&](ReplicaContext& replica) {
    norm[replica]->forward(torch::rand({2, 3, 4, 4}));
  }));
}

TEST(WaitingTimeOfOneReplica, IsNone) {
  OneDeviceStrategy strategy("cpu:0");
  auto model = strategy.scope([](ReplicaContext&) { return torch::nn::Linear(3, 2); });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return FusedSgd(model[replica]->parameters(), 0.1); });
  const auto waited = strategy.run([&](ReplicaContext& replica) {
    model[replica]->forward(torch::ones({4, 3})).sum().backward();
    replica.apply_gradients(optimizer[replica]);
    return replica.seconds_waited();
  });
  EXPECT_EQ(waited.local_values().front(), 0);
}

}  // namespace
}  // namespace lockstep
