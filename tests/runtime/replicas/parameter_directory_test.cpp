#include "lockstep/runtime/replicas/internal/parameter_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

namespace lockstep {
namespace {

TEST(ParameterDirectory, FindsNamesAndReplicasOfLivingModules) {
  ParameterDirectory directory;
  torch::nn::Sequential a(torch::nn::Linear(2, 3), torch::nn::Linear(3, 4));
  torch::nn::Sequential b(torch::nn::Linear(2, 3), torch::nn::Linear(3, 4));
  directory.add({a.ptr(), b.ptr()});
  const auto in_b = b->named_parameters()["1.bias"];
  const auto entry = directory.find(in_b);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->name, "1.bias");
  EXPECT_EQ(entry->replica, 1);
  EXPECT_EQ(directory.find(a->named_parameters()["0.weight"])->replica, 0);
  EXPECT_EQ(directory.describe(in_b, 3), "'1.bias'");
  // An equal tensor is another parameter, even if it shares the memory.
  EXPECT_FALSE(directory.find(in_b.detach()));
  EXPECT_THAT(directory.describe(torch::ones({4, 5}), 3),
              testing::AllOf(testing::HasSubstr("parameter 3"), testing::HasSubstr("[4, 5]")));
}

TEST(ParameterDirectory, SeesParametersThatJoinAModuleLater) {
  ParameterDirectory directory;
  torch::nn::Sequential module(torch::nn::Linear(2, 3));
  directory.add({module.ptr()});
  torch::nn::Linear late(3, 4);
  EXPECT_FALSE(directory.find(late->bias));
  module->push_back(late);
  EXPECT_EQ(directory.describe(late->bias, 0), "'1.bias'");
}

TEST(ParameterDirectory, ForgetsModulesThatAreGone) {
  ParameterDirectory directory;
  torch::Tensor weight;
  {
    torch::nn::Linear gone(2, 3);
    weight = gone->weight;
    directory.add({gone.ptr()});
    EXPECT_TRUE(directory.find(weight));
  }
  EXPECT_FALSE(directory.find(weight));
  torch::nn::Linear next(2, 3);
  directory.add({next.ptr()});
  EXPECT_TRUE(directory.find(next->weight));
}

}  // namespace
}  // namespace lockstep
