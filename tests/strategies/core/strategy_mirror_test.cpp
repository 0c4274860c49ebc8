// Strategy::mirror: copies of a finished module.
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/optim/sgd.h>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

/// A module whose output depends on a count that is not a registered tensor, and that reset() clears in a
/// copy.
struct HiddenScaleImpl : public torch::nn::Cloneable<HiddenScaleImpl> {
  HiddenScaleImpl() { reset(); }
  void reset() override {
    weight = register_parameter("weight", torch::ones({2}));
    calls = 0;
  }
  torch::Tensor forward(const torch::Tensor& x) { return x * weight * static_cast<double>(++calls); }
  torch::Tensor weight;
  int calls = 0;
};
TORCH_MODULE(HiddenScale);

/// One weight under two names, set by the constructor only: reset() does not set it in a copy.
struct TiedImpl : public torch::nn::Cloneable<TiedImpl> {
  TiedImpl() {
    reset();
    parameters_["second"] = first;
  }
  void reset() override {
    first = register_parameter("first", torch::ones({2}));
    register_parameter("second", torch::ones({2}));
  }
  torch::Tensor first;
};
TORCH_MODULE(Tied);

struct WithoutForwardImpl : public torch::nn::Cloneable<WithoutForwardImpl> {
  void reset() override {}
};
TORCH_MODULE(WithoutForward);

struct NoCloneImpl : public torch::nn::Module {
  NoCloneImpl() { weight = register_parameter("weight", torch::ones({2})); }
  torch::Tensor forward(const torch::Tensor& x) { return x * weight; }
  torch::Tensor weight;
};
TORCH_MODULE(NoClone);

class Mirror : public testing::Test {
 protected:
  MirroredStrategy strategy_{cpu_devices(3), {.intra_op_threads = 1}};
};

TEST_F(Mirror, EveryReplicaGetsACopyOfItsOwn) {
  TanhNet original;
  auto mirrored = strategy_.mirror(original, {.probe = torch::ones({2, 6}, torch::kDouble)});
  ASSERT_EQ(mirrored.local_values().size(), 3U);
  for (size_t replica = 0; replica < 3; ++replica) {
    const auto& copy = mirrored.local_values()[replica];
    EXPECT_TRUE(bit_equal(copy->parameters(), original->parameters()));
    EXPECT_FALSE(copy->first->weight.is_alias_of(original->first->weight));
    EXPECT_FALSE(copy->first->weight.is_alias_of(mirrored.local_values()[(replica + 1) % 3]->first->weight));
  }
  auto shared = std::make_shared<TanhNetImpl>();
  EXPECT_TRUE(bit_equal(strategy_.mirror(shared).local_values()[2]->parameters(), shared->parameters()));
}

TEST_F(Mirror, RestoresWhatCloneLoses) {
  torch::nn::Sequential original(torch::nn::Linear(2, 2), torch::nn::Dropout(), torch::nn::BatchNorm1d(2));
  original[0]->as<torch::nn::Linear>()->weight.set_requires_grad(false);
  original->eval();
  original[1]->train();
  original[2]->as<torch::nn::BatchNorm1d>()->running_mean.fill_(4);
  torch::manual_seed(12);
  const auto expected_draw = torch::rand({3});
  torch::manual_seed(12);
  auto mirrored = strategy_.mirror(original);
  EXPECT_TRUE(torch::equal(torch::rand({3}), expected_draw)) << "the random state is left alone";
  for (auto& copy : mirrored.local_values()) {
    EXPECT_FALSE(copy->is_training());
    EXPECT_TRUE(copy[1]->is_training());
    EXPECT_FALSE(copy[2]->is_training());
    EXPECT_FALSE(copy[0]->as<torch::nn::Linear>()->weight.requires_grad());
    EXPECT_TRUE(copy[0]->as<torch::nn::Linear>()->bias.requires_grad());
    EXPECT_TRUE(torch::equal(copy[2]->as<torch::nn::BatchNorm1d>()->running_mean, torch::full({2}, 4.0)));
  }
}

TEST_F(Mirror, CopiesTrainLikeModulesMadeInScope) {
  TanhNet original;
  auto model = strategy_.mirror(original);
  auto optimizer = strategy_.scope(
      [&](ReplicaContext& replica) { return torch::optim::SGD(model[replica]->parameters(), 0.1); });
  strategy_.run(
      [](ReplicaContext& replica, TanhNet& own, torch::optim::SGD& own_optimizer) {
        own(torch::full({1, 6}, replica.replica_id() + 1.0, torch::kDouble)).square().sum().backward();
        replica.apply_gradients(own_optimizer);
      },
      model, optimizer);
  for (const auto& copy : model.local_values())
    EXPECT_TRUE(bit_equal(copy->parameters(), model.primary()->parameters()));
  EXPECT_GT(largest_difference(values_of(model.primary()->parameters()), values_of(original->parameters())),
            0);
}

TEST_F(Mirror, AProbeFindsStateThatCloneCannotSee) {
  HiddenScale original;
  original->forward(torch::ones({2}));
  const auto message =
      message_of<InvalidArgument>([&] { strategy_.mirror(original, {.probe = torch::ones({2})}); });
  EXPECT_NE(message.find("another output for the probe"), std::string::npos) << message;
}

TEST_F(Mirror, AProbeLeavesTheFlagsEvenWhereForwardThrows) {
  torch::nn::Linear original(2, 2);
  EXPECT_ANY_THROW(strategy_.mirror(original, {.probe = torch::ones({1, 5})}));
  EXPECT_TRUE(original->is_training());
  auto mirrored = strategy_.mirror(original, {.probe = torch::ones({1, 2})});
  EXPECT_TRUE(original->is_training());
  EXPECT_TRUE(mirrored.primary()->is_training());
}

TEST_F(Mirror, RefusesByNameWhatItCannotCopy) {
  const auto no_clone = message_of<InvalidArgument>([&] { strategy_.mirror(NoClone()); });
  EXPECT_NE(no_clone.find("NoClone"), std::string::npos) << no_clone;
  EXPECT_NE(no_clone.find("strategy.scope()"), std::string::npos) << no_clone;

  const auto tied = message_of<InvalidArgument>([&] { strategy_.mirror(Tied()); });
  EXPECT_NE(tied.find("'second' is shared with another name"), std::string::npos) << tied;

  EXPECT_NE(
      message_of<InvalidArgument>([&] { strategy_.mirror(std::shared_ptr<TanhNetImpl>()); }).find("empty"),
      std::string::npos);
  EXPECT_NE(message_of<InvalidArgument>([&] { strategy_.mirror(TanhNet(nullptr)); }).find("empty"),
            std::string::npos);
  EXPECT_NE(message_of<InvalidArgument>([&] {
              strategy_.mirror(WithoutForward(), {.probe = torch::ones({1})});
            }).find("probe needs a module whose forward"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
