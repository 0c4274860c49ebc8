#include "lockstep/runtime/gradients/optimizer_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/tests/support/replica_group.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::unique_ptr<CollectiveChannel> local_channel(int size) {
  return std::make_unique<LocalChannel>(size, LocalAlgorithm::kSplitOverReplicas, std::chrono::minutes(5));
}

/// A module and an SGD with momentum on each of two replicas, and a strategy's records of them.
struct TwoOptimizers {
  TwoOptimizers() : directory(std::make_shared<ParameterDirectory>()), threads(2, 1) {
    for (int replica = 0; replica < 2; ++replica) {
      torch::manual_seed(1);
      modules.push_back(torch::nn::Sequential(torch::nn::Linear(3, 2), torch::nn::Linear(2, 1)));
      optimizers.push_back(std::make_unique<torch::optim::SGD>(modules.back()->parameters(),
                                                               torch::optim::SGDOptions(0.1).momentum(0.9)));
    }
    directory->add({modules[0].ptr(), modules[1].ptr()});
  }

  std::shared_ptr<OptimizerGroup> make_group() {
    return std::make_shared<OptimizerGroup>(
        std::vector<torch::optim::Optimizer*>{optimizers[0].get(), optimizers[1].get()}, local_channel(2),
        threads, directory, OptimizerGroup::Options{.is_accumulating = [](int) { return false; }});
  }
  std::string refusal_of_group() {
    try {
      make_group();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "none";
  }
  static std::string refusal_of_check(const OptimizerGroup& group, int replica) {
    try {
      group.check_parameters(replica);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "none";
  }
  std::vector<torch::Tensor>& parameters(size_t replica) {
    return optimizers[replica]->param_groups()[0].params();
  }

  std::shared_ptr<ParameterDirectory> directory;
  ReplicaThreads threads;
  std::vector<torch::nn::Sequential> modules;
  std::vector<std::unique_ptr<torch::optim::SGD>> optimizers;
};

TEST(OptimizerGroup, TrainsBothReplicasOnTheSumOfTheirGradients) {
  TwoOptimizers two;
  const auto group = two.make_group();
  EXPECT_TRUE(group->holds(*two.optimizers[1]));
  torch::optim::SGD other(two.modules[0]->parameters(), 0.1);
  EXPECT_FALSE(group->holds(other));

  // Oracle: one model on both examples.
  torch::manual_seed(1);
  torch::nn::Sequential single(torch::nn::Linear(3, 2), torch::nn::Linear(2, 1));
  torch::optim::SGD single_optimizer(single->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto inputs = torch::arange(6, torch::kFloat).view({2, 3}) / 10;
  for (int step = 0; step < 3; ++step) {
    single_optimizer.zero_grad();
    single->forward(inputs).sum().backward();
    single_optimizer.step();
    const auto errors = two.threads.run(
        [&](int replica) {
          const auto self = static_cast<size_t>(replica);
          group->reducer(replica)->prepare();
          two.optimizers[self]->zero_grad();
          two.modules[self]->forward(inputs.narrow(0, replica, 1)).sum().backward();
          group->check_parameters(replica);
          group->reducer(replica)->finish();
          two.optimizers[self]->step();
          group->reducer(replica)->mark_applied();
          group->count_step(replica);
        },
        [&](int, const std::exception_ptr&) { group->channel()->abort("planted"); });
    for (const auto& error : errors) ASSERT_EQ(message_of<std::exception>(error), "no error");
  }
  const auto expected = single->parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::allclose(two.parameters(0)[i], expected[i], 1e-5, 1e-6));
    EXPECT_TRUE(torch::equal(two.parameters(0)[i], two.parameters(1)[i]));
  }
  EXPECT_EQ(group->finished_steps(), (std::vector<int64_t>{3, 3}));
  EXPECT_TRUE(group->is_consistent());
}

TEST(OptimizerGroup, RefusesAnotherReplicasParameterAndOneHeldTwiceByName) {
  {
    TwoOptimizers two;
    two.parameters(1)[2] = two.parameters(0)[2];
    EXPECT_THAT(two.refusal_of_group(), AllOf(HasSubstr("replica 1's optimizer"), HasSubstr("'1.weight'"),
                                              HasSubstr("of replica 0")));
  }
  {
    TwoOptimizers two;
    for (size_t replica : {0, 1}) two.parameters(replica).push_back(two.parameters(replica)[1]);
    EXPECT_THAT(two.refusal_of_group(), AllOf(HasSubstr("'0.bias'"), HasSubstr("twice")));
  }
  {
    TwoOptimizers two;
    std::swap(two.parameters(1)[0], two.parameters(1)[1]);
    EXPECT_THAT(two.refusal_of_group(), AllOf(HasSubstr("replica 1 differs"), HasSubstr("'0.bias'")));
  }
  {
    TwoOptimizers two;
    two.parameters(1).pop_back();
    EXPECT_THAT(two.refusal_of_group(), AllOf(HasSubstr("replica 1 differs"), HasSubstr("'1.bias'")));
  }
}

TEST(OptimizerGroup, RefusesATensorOfNoModuleThatBothReplicasHold) {
  TwoOptimizers two;
  const auto shared = torch::ones({3}).requires_grad_();
  for (size_t replica : {0, 1}) two.parameters(replica).push_back(shared);
  EXPECT_THAT(two.refusal_of_group(),
              AllOf(HasSubstr("replicas 0 and 1"), HasSubstr("parameter 4 of shape [3]")));
}

TEST(OptimizerGroup, NamesWhatTheOptimizerHasGainedLostOrExchanged) {
  TwoOptimizers two;
  const auto group = two.make_group();
  for (int replica : {0, 1}) EXPECT_EQ(TwoOptimizers::refusal_of_check(*group, replica), "none");

  const auto original = two.parameters(1);
  auto& parameters = two.parameters(1);
  torch::nn::Linear late(1, 4);
  two.modules[1]->push_back(late);
  parameters.push_back(late->weight);
  EXPECT_THAT(TwoOptimizers::refusal_of_check(*group, 1),
              AllOf(HasSubstr("replica 1's"), HasSubstr("'2.weight', which joined")));
  EXPECT_EQ(TwoOptimizers::refusal_of_check(*group, 0), "none");

  parameters = original;
  parameters.push_back(original[0]);
  EXPECT_THAT(TwoOptimizers::refusal_of_check(*group, 1), HasSubstr("'0.weight' twice"));

  parameters = original;
  parameters[3] = two.parameters(0)[3];
  EXPECT_THAT(TwoOptimizers::refusal_of_check(*group, 1), HasSubstr("'1.bias' of replica 0"));

  for (size_t lost = 0; lost < 4; ++lost) {
    parameters = original;
    parameters.erase(parameters.begin() + static_cast<int64_t>(lost));
    EXPECT_THAT(
        TwoOptimizers::refusal_of_check(*group, 1),
        AllOf(HasSubstr("no longer holds"), HasSubstr(two.directory->describe(original[lost], lost))));
  }

  parameters = original;
  std::swap(parameters[1], parameters[2]);
  EXPECT_THAT(TwoOptimizers::refusal_of_check(*group, 1), AllOf(HasSubstr("order"), HasSubstr("'1.weight'")));

  // A group is added to the optimizer, as when a layer is unfrozen.
  parameters = original;
  two.optimizers[1]->add_param_group(torch::optim::OptimizerParamGroup({late->bias}));
  EXPECT_THAT(TwoOptimizers::refusal_of_check(*group, 1), HasSubstr("'2.bias', which joined"));
}

TEST(OptimizerGroup, CountsFinishedStepsAndCopiesStateAndCountFromOneReplica) {
  TwoOptimizers two;
  const auto group = two.make_group();
  // Replica 1 has finished two steps, replica 0 one.
  for (size_t replica : {0, 1}) {
    for (size_t step = 0; step <= replica; ++step) {
      for (auto& parameter : two.parameters(replica))
        parameter.mutable_grad() = torch::full_like(parameter, 1.0 + step);
      two.optimizers[replica]->step();
      group->count_step(static_cast<int>(replica));
    }
  }
  EXPECT_EQ(group->finished_steps(), (std::vector<int64_t>{1, 2}));
  EXPECT_FALSE(group->is_consistent());
  group->copy_state_from(1);
  EXPECT_EQ(group->finished_steps(), (std::vector<int64_t>{2, 2}));
  EXPECT_TRUE(group->is_consistent());
  // The momentum after gradients 1 and 2 is 0.9 * 1 + 2, now on replica 0 too.
  for (size_t replica : {0, 1}) {
    for (const auto& parameter : two.parameters(replica)) {
      const auto& state = static_cast<torch::optim::SGDParamState&>(
          *two.optimizers[replica]->state().at(parameter.unsafeGetTensorImpl()));
      EXPECT_TRUE(torch::allclose(state.momentum_buffer(), torch::full_like(parameter, 2.9)));
    }
  }
  const auto& first = static_cast<torch::optim::SGDParamState&>(
      *two.optimizers[0]->state().at(two.parameters(0)[0].unsafeGetTensorImpl()));
  const auto& second = static_cast<torch::optim::SGDParamState&>(
      *two.optimizers[1]->state().at(two.parameters(1)[0].unsafeGetTensorImpl()));
  EXPECT_FALSE(first.momentum_buffer().is_alias_of(second.momentum_buffer()));
}

TEST(OptimizerGroup, OneReplicaNeedsNoChannelAndNoReducer) {
  torch::nn::Linear module(2, 2);
  torch::optim::SGD optimizer(module->parameters(), 0.1);
  ReplicaThreads threads(1, 1);
  const OptimizerGroup group({&optimizer}, nullptr, threads, std::make_shared<ParameterDirectory>(), {});
  EXPECT_EQ(group.channel(), nullptr);
  EXPECT_EQ(group.reducer(0), nullptr);
  EXPECT_NO_THROW(group.check_parameters(0));
  EXPECT_TRUE(group.is_consistent());
}

}  // namespace
}  // namespace lockstep
