#include "lockstep/runtime/replicas/internal/parameter_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <vector>

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

TEST(ParameterDirectory, FindsManyParametersAtOnceInTheirOrder) {
  ParameterDirectory directory;
  const torch::nn::Linear tied(3, 3);
  torch::nn::Sequential a(torch::nn::Linear(2, 3), tied, tied);
  torch::nn::Sequential b(torch::nn::Linear(2, 3));
  directory.add({a.ptr(), b.ptr()});
  const std::vector<torch::Tensor> parameters{b[0]->parameters()[1], tied->weight, torch::ones({2}),
                                              a[0]->parameters()[0], tied->weight};
  const auto entries = directory.find_all(parameters);
  const auto owners = directory.owners(parameters);
  ASSERT_EQ(entries.size(), parameters.size());
  ASSERT_EQ(owners.size(), parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (i == 2) continue;
    ASSERT_TRUE(entries[i]) << i;
    EXPECT_EQ(entries[i]->replica, i == 0 ? 1 : 0);
  }
  EXPECT_FALSE(entries[2]);
  EXPECT_EQ(entries[0]->name, "0.bias");
  EXPECT_EQ(entries[1]->name, "1.weight");
  EXPECT_EQ(entries[4]->name, "1.weight");
  EXPECT_EQ(entries[3]->name, "0.weight");
  EXPECT_EQ(owners[0].get(), b[0].get());
  EXPECT_EQ(owners[1].get(), tied.get());
  EXPECT_EQ(owners[2], nullptr);
  EXPECT_EQ(owners[3].get(), a[0].get());
  EXPECT_EQ(owners[4].get(), tied.get());
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
