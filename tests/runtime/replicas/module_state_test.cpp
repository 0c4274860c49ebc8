#include "lockstep/runtime/replicas/module_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

/// A frozen weight, a buffer of each kind, and children with their own training flags.
struct MixedImpl : torch::nn::Cloneable<MixedImpl> {
  MixedImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    scale = register_parameter("scale", torch::rand({2}));
    count = register_buffer("count", torch::zeros({}, torch::kLong));
  }
  torch::nn::Linear first{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor scale, count;
};

struct TiedImpl : torch::nn::Cloneable<TiedImpl> {
  TiedImpl() { reset(); }
  void reset() override {
    if (weight.defined()) {  // a clone registers two tensors
      weight = register_parameter("weight", torch::ones({2}));
      register_parameter("again", torch::ones({2}));
    } else {
      weight = register_parameter("weight", torch::ones({2}));
      register_parameter("again", weight);
    }
  }
  torch::Tensor weight;
};

struct NotCloneable : torch::nn::Module {
  NotCloneable() { register_parameter("weight", torch::ones({2})); }
};

struct Shaped : torch::nn::Module {
  Shaped(std::vector<std::pair<std::string, torch::Tensor>> parameters,
         std::vector<std::pair<std::string, torch::Tensor>> buffers = {}) {
    for (auto& [name, tensor] : parameters) register_parameter(name, tensor, tensor.requires_grad());
    for (auto& [name, tensor] : buffers) register_buffer(name, tensor);
  }
};

ModulePointer shaped(std::vector<std::pair<std::string, torch::Tensor>> parameters,
                     std::vector<std::pair<std::string, torch::Tensor>> buffers = {}) {
  return std::make_shared<Shaped>(std::move(parameters), std::move(buffers));
}

std::string difference_of(const ModulePointer& a, const ModulePointer& b) {
  try {
    check_same_structure({a, b}, "who");
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "none";
}

TEST(ModuleState, ACloneKeepsValuesFlagsAndRequiresGradAndTheRandomState) {
  auto original = std::make_shared<MixedImpl>();
  original->first->weight.set_requires_grad(false);
  original->norm->eval();
  original->norm->running_mean.fill_(3);
  original->count.fill_(5);
  torch::manual_seed(1);
  const auto expected_draw = torch::rand({4});
  torch::manual_seed(1);
  const auto copy = clone_module(original, torch::kCPU);
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected_draw));
  const auto from = named_state(*original);
  const auto to = named_state(*copy);
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i].first, to[i].first);
    EXPECT_TRUE(torch::equal(from[i].second, to[i].second)) << from[i].first;
    EXPECT_FALSE(from[i].second.is_alias_of(to[i].second)) << from[i].first;
    EXPECT_EQ(from[i].second.requires_grad(), to[i].second.requires_grad()) << from[i].first;
  }
  EXPECT_EQ(training_flags(*copy), (std::vector<bool>{true, true, false}));
}

TEST(ModuleState, ACloneOfAModuleInEvaluationIsInEvaluation) {
  auto original = std::make_shared<MixedImpl>();
  original->eval();
  original->first->train();
  EXPECT_EQ(training_flags(*clone_module(original, torch::kCPU)), (std::vector<bool>{false, true, false}));
}

TEST(ModuleState, RefusesModulesThatCannotBeClonedAndTiedWeightsByName) {
  try {
    clone_module(std::make_shared<NotCloneable>(), torch::kCPU);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("NotCloneable"));
    EXPECT_THAT(error.what(), HasSubstr("scope"));
  }
  try {
    clone_module(std::make_shared<TiedImpl>(), torch::kCPU);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("'again' is shared"));
  }
}

TEST(ModuleState, NamesTheFirstDifferenceBetweenReplicas) {
  const auto ones = [](std::vector<int64_t> shape) { return torch::ones(shape).requires_grad_(); };
  EXPECT_EQ(difference_of(shaped({{"a", ones({2})}}), shaped({{"a", ones({2})}})), "none");
  EXPECT_THAT(difference_of(shaped({{"a", ones({2})}}), shaped({{"b", ones({2})}})),
              testing::AllOf(HasSubstr("'a'"), HasSubstr("'b'"), HasSubstr("[who]")));
  EXPECT_THAT(difference_of(shaped({{"a", ones({2})}}), shaped({{"a", ones({2})}, {"b", ones({2})}})),
              HasSubstr("'b' where replica 0 has none"));
  EXPECT_THAT(difference_of(shaped({{"a", ones({2})}}), shaped({{"a", ones({2, 1})}})),
              testing::AllOf(HasSubstr("'a'"), HasSubstr("Float [2]"), HasSubstr("Float [2, 1]")));
  EXPECT_THAT(difference_of(shaped({{"a", ones({2})}}),
                            shaped({{"a", torch::ones({2}, torch::kDouble).requires_grad_()}})),
              HasSubstr("Double [2]"));
  EXPECT_THAT(difference_of(shaped({{"a", ones({2})}}), shaped({{"a", torch::ones({2})}})),
              HasSubstr("'a' requires a gradient"));
  const auto tied = ones({2});
  EXPECT_THAT(difference_of(shaped({{"a", ones({2})}, {"b", ones({2})}}), shaped({{"a", tied}, {"b", tied}})),
              HasSubstr("'b' is shared"));
  EXPECT_THAT(difference_of(shaped({{"a", tied}}), shaped({{"a", tied}})),
              HasSubstr("'a' is the same memory"));
  EXPECT_THAT(difference_of(shaped({}, {{"a", torch::ones({1})}}), shaped({}, {{"a", torch::ones({3})}})),
              HasSubstr("'a'"));
  // Parameters tied or absent on both sides are no difference.
  const auto other = ones({2});
  EXPECT_EQ(difference_of(shaped({{"a", tied}, {"b", tied}}), shaped({{"a", other}, {"b", other}})), "none");
  EXPECT_EQ(
      difference_of(std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(2, 2).bias(false)),
                    std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(2, 2).bias(false))),
      "none");
}

TEST(ModuleState, CopiesParametersAndBuffersToAllOthers) {
  std::vector<std::shared_ptr<MixedImpl>> modules;
  for (int i = 0; i < 3; ++i) {
    modules.push_back(std::make_shared<MixedImpl>());
    modules.back()->count.fill_(i);
  }
  copy_module_state({modules[0], modules[1], modules[2]}, 1);
  const auto expected = named_state(*modules[1]);
  EXPECT_EQ(modules[1]->count.item<int64_t>(), 1);
  for (const auto& module : modules) {
    const auto state = named_state(*module);
    for (size_t i = 0; i < state.size(); ++i) EXPECT_TRUE(torch::equal(state[i].second, expected[i].second));
    EXPECT_TRUE(module->scale.is_leaf() && module->scale.requires_grad());
  }
}

TEST(ModuleState, SetsEachModulesOwnFlag) {
  auto module = std::make_shared<MixedImpl>();
  for (const auto& flags :
       {std::vector<bool>{true, false, true}, {false, true, false}, {false, false, true}}) {
    set_training_flags(*module, flags);
    EXPECT_EQ(module->is_training(), flags[0]);
    EXPECT_EQ(module->first->is_training(), flags[1]);
    EXPECT_EQ(module->norm->is_training(), flags[2]);
    EXPECT_EQ(training_flags(*module), flags);
  }
}

TEST(ModuleState, NamesTheWholeStateParametersFirstAndSharedTensorsTwice) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named_state(*std::make_shared<MixedImpl>())) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"scale", "first.weight", "first.bias", "norm.weight",
                                             "norm.bias", "count", "norm.running_mean", "norm.running_var",
                                             "norm.num_batches_tracked"}));
  EXPECT_EQ(named_state(*std::make_shared<TiedImpl>()).size(), 2U);
}

}  // namespace
}  // namespace lockstep
