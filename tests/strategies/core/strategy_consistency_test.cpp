// The state after a run in which only some replicas finished a step.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <latch>

#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

class RestoreConsistency : public testing::Test {
 protected:
  static constexpr int kReplicas = 3;
  using Sgd = torch::optim::SGD;

  static Sgd make_optimizer(TanhNet& model) {
    return Sgd(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  }

  static void backward(ReplicaContext& replica, TanhNet& own, Sgd& optimizer) {
    optimizer.zero_grad();
    own(torch::full({1, 6}, 0.5 + replica.replica_id(), torch::kDouble)).square().sum().backward();
  }

  void step() {
    strategy_.run(
        [](ReplicaContext& replica, TanhNet& own, Sgd& optimizer) {
          backward(replica, own, optimizer);
          replica.apply_gradients(optimizer);
        },
        model_, optimizer_);
  }

  /// Replica 1 fails after its gradients are summed and before it steps; the others step.
  void fail_one_step() {
    std::latch others_have_stepped(kReplicas - 1);
    EXPECT_THROW(strategy_.run(
                     [&](ReplicaContext& replica, TanhNet& own, Sgd& optimizer) {
                       backward(replica, own, optimizer);
                       replica.reduce_gradients(optimizer);
                       if (replica.replica_id() == 1) {
                         others_have_stepped.wait();
                         throw std::domain_error("planted");
                       }
                       replica.apply_gradients(optimizer);
                       others_have_stepped.count_down();
                     },
                     model_, optimizer_),
                 std::domain_error);
  }

  MirroredStrategy strategy_{cpu_devices(kReplicas), {.intra_op_threads = 1}};
  Mirrored<TanhNet> model_ = strategy_.scope([](ReplicaContext&) { return TanhNet(); });
  Mirrored<Sgd> optimizer_ =
      strategy_.scope([this](ReplicaContext& replica) { return make_optimizer(model_[replica]); });
};

TEST_F(RestoreConsistency, UnequalStepsRefuseEveryRunUntilRestored) {
  step();
  fail_one_step();
  EXPECT_EQ(strategy_.optimizer_group(optimizer_.primary())->finished_steps(),
            (std::vector<int64_t>{2, 1, 2}));
  const auto message = message_of<InconsistentReplicas>([&] { strategy_.run([](ReplicaContext&) {}); });
  EXPECT_NE(message.find("2, 1, 2 finished steps"), std::string::npos) << message;
  EXPECT_NE(message.find("restore_consistency"), std::string::npos) << message;
  strategy_.restore_consistency(model_, optimizer_);
  EXPECT_NO_THROW(step());
}

TEST_F(RestoreConsistency, GoesOnBitEqualToARunThatNeverFailed) {
  const auto initial = values_of(model_.primary()->parameters());
  step();
  step();
  step();
  const auto expected = values_of(model_.primary()->parameters());

  // The same three steps from the same values; the second one fails on replica 1.
  auto model = strategy_.scope([&](ReplicaContext&) {
    const torch::NoGradGuard no_grad;
    TanhNet net;
    for (size_t i = 0; i < initial.size(); ++i) net->parameters()[i].copy_(initial[i]);
    return net;
  });
  auto optimizer = strategy_.scope([&](ReplicaContext& replica) { return make_optimizer(model[replica]); });
  std::swap(model_, model);
  std::swap(optimizer_, optimizer);
  step();
  fail_one_step();
  strategy_.restore_consistency(model_, optimizer_);
  for (const auto& own : model_.local_values())
    EXPECT_TRUE(bit_equal(own->parameters(), model_.primary()->parameters()));
  step();
  for (const auto& own : model_.local_values()) EXPECT_TRUE(bit_equal(own->parameters(), expected));
}

TEST_F(RestoreConsistency, AFailureThatStoppedEveryReplicaNeedsNoRepair) {
  step();
  EXPECT_THROW(strategy_.run(
                   [](ReplicaContext& replica, TanhNet& own, Sgd& optimizer) {
                     if (replica.replica_id() == 2) throw std::domain_error("planted");
                     backward(replica, own, optimizer);
                     replica.apply_gradients(optimizer);
                   },
                   model_, optimizer_),
               std::domain_error);
  EXPECT_EQ(strategy_.optimizer_group(optimizer_.primary())->finished_steps(),
            (std::vector<int64_t>{1, 1, 1}));
  EXPECT_NO_THROW(step());
  for (const auto& own : model_.local_values())
    EXPECT_TRUE(bit_equal(own->parameters(), model_.primary()->parameters()));
}

TEST_F(RestoreConsistency, AnOptimizerThatIsGoneNoLongerCounts) {
  {
    auto model = strategy_.scope([](ReplicaContext&) { return TanhNet(); });
    auto other = strategy_.scope([&](ReplicaContext& replica) { return make_optimizer(model[replica]); });
    std::swap(model, model_);
    std::swap(other, optimizer_);
    fail_one_step();
    std::swap(other, optimizer_);
    std::swap(model, model_);
  }
  EXPECT_NO_THROW(strategy_.run([](ReplicaContext&) {}));
}

TEST_F(RestoreConsistency, RefusesAnOptimizerThatScopeDidNotMake) {
  OneDeviceStrategy other("cpu:0");
  auto foreign_model = other.scope([](ReplicaContext&) { return TanhNet(); });
  auto foreign = other.scope([&](ReplicaContext& replica) { return make_optimizer(foreign_model[replica]); });
  EXPECT_THROW(strategy_.restore_consistency(model_, foreign), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
