#include "lockstep/datasets/tensors/tensor_dataset.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <stdexcept>

namespace lockstep {
namespace {

TEST(TensorDataset, GathersRowsInTheOrderAskedFor) {
  const TensorDataset dataset(torch::arange(12, torch::kFloat).view({4, 3}), torch::arange(4) * 10);
  EXPECT_EQ(dataset.size(), 4U);
  const auto batch = dataset.get_batch({2, 0, 2});
  EXPECT_TRUE(batch.data.equal(torch::tensor({{6.F, 7.F, 8.F}, {0.F, 1.F, 2.F}, {6.F, 7.F, 8.F}})));
  EXPECT_TRUE(batch.target.equal(torch::tensor({20, 0, 20}, torch::kLong)));
  EXPECT_TRUE(dataset.device_transform(batch).data.is_same(batch.data));
}

TEST(TensorDataset, GathersFromTensorsThatAreNotContiguous) {
  const torch::Tensor data = torch::arange(12, torch::kFloat).view({3, 4}).t();
  const TensorDataset dataset(data, torch::arange(8).view({4, 2}).select(1, 0));
  const auto batch = dataset.get_batch({3, 1});
  EXPECT_TRUE(batch.data.equal(torch::tensor({{3.F, 7.F, 11.F}, {1.F, 5.F, 9.F}})));
  EXPECT_TRUE(batch.target.equal(torch::tensor({6, 2}, torch::kLong)));
}

TEST(TensorDataset, GivesAnEmptyBatchForNoIndices) {
  const TensorDataset dataset(torch::zeros({4, 3}), torch::zeros({4, 10}));
  const auto batch = dataset.get_batch({});
  EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(batch.target.sizes(), (std::vector<int64_t>{0, 10}));
}

TEST(TensorDataset, HasAnIdentityOfItsSizesTypesAndWholeNumbers) {
  const torch::Tensor data = torch::arange(4000, torch::kByte).view({1000, 4});
  const torch::Tensor target = torch::arange(1000) % 10;
  const auto identity = [](const torch::Tensor& rows, const torch::Tensor& labels) {
    return TensorDataset(rows, labels).identity();
  };
  const std::string first = identity(data, target);
  EXPECT_EQ(first, identity(data.clone(), target.clone()));
  EXPECT_EQ(first, identity(data.t().contiguous().t(), target)) << "the same values in another layout";
  EXPECT_NE(first, identity(data + 1, target));
  EXPECT_NE(first, identity(data, target.flip(0)));
  EXPECT_NE(first, identity(data.view({1000, 2, 2}), target));
  EXPECT_NE(first, identity(data.to(torch::kInt), target));
  EXPECT_NE(first, TensorDataset(data).identity());
  // Machines may round differently.
  const torch::Tensor images = torch::rand({1000, 4});
  EXPECT_EQ(identity(images, target), identity(images * 1.0001, target));
}

TEST(TensorDataset, LeavesTheTargetsOfExamplesWithoutTargetsUndefined) {
  const TensorDataset dataset(torch::arange(12, torch::kFloat).view({4, 3}));
  EXPECT_EQ(dataset.size(), 4U);
  const auto batch = dataset.get_batch({2, 0});
  EXPECT_TRUE(batch.data.equal(torch::tensor({{6.F, 7.F, 8.F}, {0.F, 1.F, 2.F}})));
  EXPECT_FALSE(batch.target.defined());
  EXPECT_THROW(dataset.get_batch({4}), std::invalid_argument);
  EXPECT_THROW(TensorDataset{torch::Tensor()}, std::invalid_argument);
  EXPECT_THROW(TensorDataset{torch::zeros({})}, std::invalid_argument);
}

TEST(TensorDataset, RefusesTensorsAndIndicesThatDoNotFit) {
  EXPECT_THROW(TensorDataset(torch::zeros({4}), torch::zeros({5})), std::invalid_argument);
  EXPECT_THROW(TensorDataset(torch::zeros({4}), torch::Tensor()), std::invalid_argument);
  EXPECT_THROW(TensorDataset(torch::zeros({}), torch::zeros({})), std::invalid_argument);
  const TensorDataset dataset(torch::zeros({4}), torch::zeros({4}));
  EXPECT_THROW(dataset.get_batch({0, 4}), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
