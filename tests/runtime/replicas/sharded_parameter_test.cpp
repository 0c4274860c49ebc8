// Marks of parameters' shards, and what replicas do with them.
#include "lockstep/runtime/replicas/sharded_parameter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/replicas/module_state.h"

namespace lockstep {
namespace {

ShardedParameter part_of(std::vector<int64_t> sizes, int64_t offset, int64_t length) {
  return {.name = "weight",
          .sizes = std::move(sizes),
          .strides = {1, 3},
          .offset = offset,
          .length = length,
          .axis = "data"};
}

TEST(ShardedParameterTest, AMarkGoesWithTheTensorAndItsAliases) {
  const auto tensor = torch::ones({4}).requires_grad_();
  EXPECT_EQ(sharded_parameter_of(tensor), nullptr);
  EXPECT_EQ(sharded_parameter_of(torch::Tensor()), nullptr);
  mark_shard(tensor, part_of({3, 5}, 4, 4));
  const auto* shard = sharded_parameter_of(tensor);
  ASSERT_NE(shard, nullptr);
  EXPECT_EQ(shard->name, "weight");
  EXPECT_EQ(shard->num_elements(), 15);
  EXPECT_EQ(shard->strides, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(shard->offset, 4);
  EXPECT_EQ(shard->axis, "data");
  ASSERT_NE(sharded_parameter_of(tensor.detach()), nullptr);
  EXPECT_EQ(sharded_parameter_of(tensor.detach())->length, 4);
}

TEST(ShardedParameterTest, CopiesHaveNoMark) {
  const auto tensor = torch::ones({4});
  mark_shard(tensor, part_of({3, 5}, 4, 4));
  EXPECT_EQ(sharded_parameter_of(tensor.clone()), nullptr);
  EXPECT_EQ(sharded_parameter_of(torch::zeros_like(tensor)), nullptr);
  EXPECT_EQ(sharded_parameter_of(tensor + 1), nullptr);
}

TEST(ShardedParameterTest, SlicesOfRowsCountTheRowsElements) {
  const auto whole = torch::arange(48).view({8, 6});
  for (const int64_t dim : {0, 1}) {
    const ShardedParameter cut{.name = "weight",
                               .sizes = {8, 6},
                               .strides = {6, 1},
                               .offset = whole.size(dim) / 2,
                               .length = whole.size(dim) / 2,
                               .axis = "tensor",
                               .dim = dim};
    const auto rows = part_of_values(whole, cut);
    EXPECT_TRUE(rows.equal(whole.narrow(dim, cut.offset, cut.length)));
    EXPECT_EQ(sizes_of_cut(cut), rows.sizes().vec());
    mark_shard(rows, cut);
    const auto place = slice_of_parameter(rows, "layer.weight", "shard", 5, 9);
    EXPECT_EQ(place.num_elements(), 48);
    EXPECT_EQ(place.num_elements_along_axis(), 24);
    EXPECT_TRUE(part_of_values(whole, place).equal(rows.flatten().narrow(0, 5, 9)));
    const auto slice = torch::zeros({9});
    mark_shard(slice, place);
    EXPECT_TRUE(is_slice(slice));
    EXPECT_FALSE(is_cut(slice));
    ASSERT_NE(cut_of(slice), nullptr);
    EXPECT_EQ(cut_of(slice)->axis, "tensor");
    EXPECT_EQ(sharded_parameter_of(slice)->axis, "shard");
    EXPECT_EQ(whole_sizes(slice), at::IntArrayRef({8, 6}));
    EXPECT_EQ(cut_of(rows)->offset, cut.offset);
  }
}

TEST(ShardedParameterTest, SlicesOfWholeParametersAreInTheOrderOfMemory) {
  const auto whole = torch::arange(15).view({5, 3}).t();
  const auto place = slice_of_parameter(whole, "weight", "shard", 4, 6);
  EXPECT_EQ(place.cut, nullptr);
  EXPECT_EQ(place.num_elements_along_axis(), 15);
  EXPECT_TRUE(part_of_values(whole, place).equal(torch::arange(4, 10)));
  const auto slice = torch::zeros({6});
  mark_shard(slice, place);
  EXPECT_EQ(cut_of(slice), nullptr);
  EXPECT_EQ(cut_of(whole), nullptr);
}

/// A module with a shard of a parameter of these sizes, and a buffer.
ModulePointer module_with_part(const std::vector<int64_t>& sizes, int64_t offset, int64_t length,
                               double value) {
  auto module = std::make_shared<torch::nn::Module>("model");
  const auto shard = torch::full({length}, value);
  mark_shard(shard, part_of(sizes, offset, length));
  module->register_parameter("weight", shard);
  module->register_buffer("count", torch::full({2}, value));
  return module;
}

TEST(ShardedParameterTest, ReplicasKeepTheirPartsAndTakeOverTheRest) {
  const std::vector<ModulePointer> replicas{module_with_part({3, 5}, 0, 8, 1),
                                            module_with_part({3, 5}, 8, 7, 2),
                                            module_with_part({3, 5}, 0, 0, 3)};
  EXPECT_NO_THROW(check_same_structure(replicas, "test"));
  copy_module_state(replicas, 0);
  EXPECT_TRUE(replicas[1]->parameters()[0].equal(torch::full({7}, 2.0)));
  EXPECT_TRUE(replicas[1]->buffers()[0].equal(torch::full({2}, 1.0)));
}

TEST(ShardedParameterTest, ReplicasMustHavePartsOfTheSameParameter) {
  const std::vector<ModulePointer> replicas{module_with_part({3, 5}, 0, 8, 1),
                                            module_with_part({5, 3}, 8, 7, 2)};
  try {
    check_same_structure(replicas, "test");
    FAIL() << "expected an error";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'weight' to be a part of Float [3, 5]"));
    EXPECT_THAT(error.what(), testing::HasSubstr("it is a part of Float [5, 3]"));
  }
}

}  // namespace
}  // namespace lockstep
