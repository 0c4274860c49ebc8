#include "lockstep/models/internal/relu6.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>

namespace lockstep {
namespace {

const auto kValues = std::vector<double>{-7, -1, -0.0, 0, 0.5, 3, 5.999, 6, 6.001, 9};

TEST(Relu6Test, EqualsTorchInValueAndGradientBoundsIncluded) {
  const auto leaf = torch::tensor(kValues, torch::kFloat64).requires_grad_();
  const auto weights = torch::arange(1, 11, torch::kFloat64);
  const auto expected = torch::relu6(leaf.clone());
  const auto result = relu6_in_place(leaf.clone());
  EXPECT_TRUE(torch::equal(result, expected));
  EXPECT_TRUE(torch::equal(torch::autograd::grad({(result * weights).sum()}, {leaf})[0],
                           torch::autograd::grad({(expected * weights).sum()}, {leaf})[0]));
}

TEST(Relu6Test, WorksInPlaceWithAndWithoutGradient) {
  auto plain = torch::tensor(kValues, torch::kFloat64);
  EXPECT_TRUE(relu6_in_place(plain).is_same(plain));
  EXPECT_EQ(plain.max().item<double>(), 6);
  const auto leaf = torch::tensor(kValues, torch::kFloat64).requires_grad_();
  auto input = leaf.clone();
  const auto result = relu6_in_place(input);
  EXPECT_EQ(result.data_ptr(), input.data_ptr());
  EXPECT_EQ(input.max().item<double>(), 6);
}

TEST(Relu6Test, TheOverwrittenInputCannotBeUsedByABackwardThatNeedsIt) {
  const auto leaf = torch::ones({3}).requires_grad_();
  auto input = leaf * 2;
  const auto square = input * input;  // saves `input`
  relu6_in_place(input);
  EXPECT_ANY_THROW(square.sum().backward());
}

}  // namespace
}  // namespace lockstep
