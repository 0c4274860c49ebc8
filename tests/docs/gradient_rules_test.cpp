// The rules for gradients in from_pytorch_ddp.md and from_horovod.md, under "What behaves differently".
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Two replicas of y = w2 (w1 x), without biases. Each weight has its own bucket, which is sent when its
/// gradient is there.
class GradientRules : public ::testing::Test {
 protected:
  using Net = torch::nn::Sequential;

  MirroredStrategy strategy{{"cpu:0", "cpu:1"}, {.buckets = {.first_bucket_bytes = 1, .bucket_bytes = 1}}};
  Mirrored<Net> model = strategy.scope([](ReplicaContext&) {
    const auto layer = [] { return torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)); };
    return Net(layer(), layer());
  });
  Mirrored<torch::optim::SGD> optimizer = strategy.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(model[replica]->parameters(), 1.0); });

  static torch::Tensor loss_of(Net& net) { return net->forward(torch::ones({1, 1})).sum(); }

  /// Runs a step on both replicas.
  template <typename Step>
  void run(const Step& step) {
    strategy.run(step, model, optimizer);
  }

  /// Returns the message of the InvalidArgument that a step throws.
  template <typename Step>
  std::string refusal_of(const Step& step) {
    try {
      run(step);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "no error";
  }

  /// Replica `index`'s w1 or w2.
  double weight(size_t index, size_t layer) {
    return model.local_values()[index]->parameters()[layer].item<double>();
  }
};

TEST_F(GradientRules, TwoBackwardsWithoutAccumulateAreRefusedByName) {
  EXPECT_THAT(refusal_of([](ReplicaContext& replica, Net& net, torch::optim::SGD& sgd) {
                sgd.zero_grad();
                loss_of(net).backward();
                loss_of(net).backward();
                replica.apply_gradients(sgd);
              }),
              AllOf(HasSubstr("weight'"), HasSubstr("replica.accumulate()")));
}

TEST_F(GradientRules, BackwardsUnderAccumulateAddUp) {
  const double w1 = weight(0, 0), w2 = weight(0, 1);
  run([](ReplicaContext& replica, Net& net, torch::optim::SGD& sgd) {
    sgd.zero_grad();
    {
      const auto hold = replica.accumulate();
      loss_of(net).backward();
    }
    loss_of(net).backward();
    replica.apply_gradients(sgd);
  });
  // Two replicas, two backwards, each with the gradients w2 and w1.
  for (const size_t replica : {0, 1}) {
    EXPECT_NEAR(weight(replica, 0), w1 - 4 * w2, 1e-5);
    EXPECT_NEAR(weight(replica, 1), w2 - 4 * w1, 1e-5);
  }
}

TEST_F(GradientRules, AStepWithoutZeroGradIsRefused) {
  const auto step = [](ReplicaContext& replica, Net& net, torch::optim::SGD& sgd) {
    loss_of(net).backward();
    replica.apply_gradients(sgd);
  };
  run(step);
  EXPECT_THAT(refusal_of(step), HasSubstr("zero_grad()"));
}

TEST_F(GradientRules, AGradientThatIsBeingSummedCannotBeChangedClippedReadOrSteppedBy) {
  using Use = std::function<void(Net&, torch::optim::SGD&)>;
  const std::vector<Use> uses{
      [](Net& net, torch::optim::SGD&) { net->parameters()[0].mutable_grad().mul_(0.5); },
      [](Net& net, torch::optim::SGD&) { net->parameters()[0].grad().sum().item<double>(); },
      // These two go around version counters, by data().
      [](Net& net, torch::optim::SGD&) { torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0); },
      [](Net&, torch::optim::SGD& sgd) { sgd.step(); }};
  for (const auto& use : uses) {
    EXPECT_THAT(refusal_of([&](ReplicaContext& replica, Net& net, torch::optim::SGD& sgd) {
                  sgd.zero_grad();
                  loss_of(net).backward();
                  use(net, sgd);
                  replica.apply_gradients(sgd);
                }),
                AllOf(HasSubstr("the gradient of '0.weight' is being summed"), HasSubstr(".clip_norm"),
                      HasSubstr("replica.reduce_gradients(optimizer)")));
  }
}

TEST_F(GradientRules, GradientsThatNobodyAskedForAreUndefinedOnceTheirOptimizerIsGone) {
  Net kept = nullptr;
  {
    MirroredStrategy short_lived({"cpu:0", "cpu:1"});
    auto nets = short_lived.scope([](ReplicaContext&) { return Net(torch::nn::Linear(1, 1)); });
    auto sgds = short_lived.scope(
        [&](ReplicaContext& replica) { return torch::optim::SGD(nets[replica]->parameters(), 1.0); });
    short_lived.run([](ReplicaContext&, Net& net, torch::optim::SGD&) { loss_of(net).backward(); }, nets,
                    sgds);
    kept = nets.primary();
    EXPECT_TRUE(kept->parameters()[0].grad().defined());
  }
  EXPECT_FALSE(kept->parameters()[0].grad().defined());
  loss_of(kept).backward();
  EXPECT_EQ(kept->parameters()[1].grad().item<double>(), 1);
}

TEST_F(GradientRules, AParameterOfTwoOptimizersIsRefusedByName) {
  const auto other = strategy.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(model[replica]->parameters(), 1.0); });
  EXPECT_THAT(refusal_of([](ReplicaContext& replica, Net& net, torch::optim::SGD& sgd) {
                sgd.zero_grad();
                loss_of(net).backward();
                replica.apply_gradients(sgd);
              }),
              AllOf(HasSubstr("weight'"), HasSubstr("belongs to two optimizers")));
}

TEST_F(GradientRules, RequiresGradChangesBetweenRuns) {
  const auto step = [](ReplicaContext& replica, Net& net, torch::optim::SGD& sgd) {
    sgd.zero_grad();
    loss_of(net).backward();
    replica.apply_gradients(sgd);
  };
  const auto set_requires_grad = [&](bool on) {
    for (auto& net : model.local_values()) net->parameters()[0].set_requires_grad(on);
  };
  set_requires_grad(false);
  const double frozen = weight(0, 0);
  run(step);
  EXPECT_EQ(weight(0, 0), frozen);
  set_requires_grad(true);
  run(step);
  EXPECT_NE(weight(0, 0), frozen);
  EXPECT_EQ(weight(0, 0), weight(1, 0));

  set_requires_grad(false);
  EXPECT_THAT(refusal_of([](ReplicaContext& replica, Net& net, torch::optim::SGD& sgd) {
                net->parameters()[0].set_requires_grad(true);
                sgd.zero_grad();
                loss_of(net).backward();
                replica.apply_gradients(sgd);
              }),
              AllOf(HasSubstr("'0.weight'"), HasSubstr("change requires_grad between runs")));
}

TEST_F(GradientRules, AParameterThatStopsRequiringAGradientWithinARunIsUnused) {
  const double before = weight(0, 0), other = weight(0, 1);
  run([](ReplicaContext& replica, Net& net, torch::optim::SGD& sgd) {
    net->parameters()[0].set_requires_grad(false);
    sgd.zero_grad();
    loss_of(net).backward();
    replica.apply_gradients(sgd);
  });
  for (const size_t replica : {0, 1}) {
    EXPECT_EQ(weight(replica, 0), before);
    EXPECT_NEAR(weight(replica, 1), other - 2 * before, 1e-5);
  }
}

TEST_F(GradientRules, AParameterGroupThatIsAddedLaterIsRefused) {
  EXPECT_THAT(refusal_of([](ReplicaContext& replica, Net& net, torch::optim::SGD& sgd) {
                sgd.add_param_group(torch::optim::OptimizerParamGroup({torch::ones({1}).requires_grad_()}));
                sgd.zero_grad();
                loss_of(net).backward();
                replica.apply_gradients(sgd);
              }),
              HasSubstr("joined"));
}

TEST_F(GradientRules, BackwardWithCreateGraphIsRefused) {
  EXPECT_THAT(refusal_of([](ReplicaContext&, Net& net, torch::optim::SGD&) {
                loss_of(net).backward({}, /*retain_graph=*/true, /*create_graph=*/true);
              }),
              HasSubstr("torch::autograd::grad"));
}

TEST_F(GradientRules, OneReplicaAddsBackwardsUpAsWithoutAStrategy) {
  DefaultStrategy alone;
  auto net = alone.scope([](ReplicaContext&) { return torch::nn::Linear(1, 1); });
  auto sgd = alone.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(net[replica]->parameters(), 1.0); });
  const double before = net.primary()->bias.item<double>();
  alone.run(
      [](ReplicaContext& replica, torch::nn::Linear& linear, torch::optim::SGD& optimizer) {
        for (int i = 0; i < 2; ++i) linear->forward(torch::ones({1, 1})).sum().backward();
        replica.apply_gradients(optimizer);
      },
      net, sgd);
  EXPECT_NEAR(net.primary()->bias.item<double>(), before - 2, 1e-6);
}

}  // namespace
}  // namespace lockstep
