// MirroredStrategy with a failing replica or an invalid device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

TEST(MirroredStrategy, AReplicaThatReturnsEarlyIsNamedWithTheRunWhetherTheOthersWaitOrNot) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  strategy.run([](ReplicaContext&) {});
  auto model = strategy.scope([](ReplicaContext&) { return torch::nn::Linear(2, 2); });
  auto optimizer = strategy.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(model[replica]->parameters(), 0.1); });
  using Step = std::function<void(ReplicaContext&, torch::nn::Linear&, torch::optim::SGD&)>;
  const std::vector<std::pair<Step, std::string>> steps{
      {[](ReplicaContext& replica, torch::nn::Linear&, torch::optim::SGD&) {
         replica.all_reduce_(ReduceOp::kSum, torch::ones({2}));
       },
       "replica 0 called all_reduce sum Float[2] (collective #0)"},
      // Backward launches the sums, and nobody waits for them.
      {[](ReplicaContext&, torch::nn::Linear& own, torch::optim::SGD&) {
         own->forward(torch::ones({1, 2})).sum().backward();
       },
       "replica 0 called all_reduce sum Float["},
      {[](ReplicaContext& replica, torch::nn::Linear& own, torch::optim::SGD& sgd) {
         own->forward(torch::ones({1, 2})).sum().backward();
         replica.apply_gradients(sgd);
       },
       "replica 0 called all_reduce sum Float["}};
  int run = 0;
  for (const auto& [step, call] : steps) {
    const auto message = message_of<CollectiveMismatch>([&, step = step] {
      strategy.run(
          [&](ReplicaContext& replica, torch::nn::Linear& own, torch::optim::SGD& sgd) {
            if (replica.replica_id() == 0) step(replica, own, sgd);
          },
          model, optimizer);
    });
    EXPECT_THAT(message, AllOf(StartsWith("[MirroredStrategy] run #" + std::to_string(++run) + ": "),
                               HasSubstr(call), HasSubstr("but replica 1 returned without joining it")));
    if (testing::Test::HasFailure()) return;
    for (auto& own : model.local_values()) own->zero_grad();
  }
}

TEST(MirroredStrategy, RefusesUnknownAndRepeatedDevicesByName) {
  EXPECT_THROW(MirroredStrategy({"gpu:x"}), InvalidArgument);
  EXPECT_THROW(MirroredStrategy({"gpu:99"}), InvalidArgument);
  EXPECT_THROW(MirroredStrategy({"cpu:0", "/device:CPU:0"}), InvalidArgument);
  EXPECT_THROW(MirroredStrategy({""}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
