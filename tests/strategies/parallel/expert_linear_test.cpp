// Linear layers of several experts. Oracle: at::linear() on the rows of each expert.
#include "lockstep/strategies/parallel/internal/expert_linear.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <cstdint>
#include <vector>

#include "lockstep/runtime/precision/autocast.h"

namespace lockstep {
namespace {

constexpr int64_t kInputs = 5;
constexpr int64_t kOutputs = 4;

const std::vector<int64_t>& uneven_counts() {
  static const std::vector<int64_t> counts{3, 0, 1, 6};
  return counts;
}

struct LinearCase {
  explicit LinearCase(bool has_bias, at::ScalarType dtype = torch::kDouble) {
    torch::manual_seed(3);
    const auto options = torch::dtype(dtype);
    rows = torch::randn({10, kInputs}, options).requires_grad_();
    weight = torch::randn({4, kOutputs, kInputs}, options).requires_grad_();
    if (has_bias) bias = torch::randn({4, kOutputs}, options).requires_grad_();
    gradient = torch::randn({10, kOutputs}, options);
  }

  torch::Tensor of_all() const { return expert_linear(rows, weight, bias, uneven_counts()); }
  torch::Tensor of_each() const {
    std::vector<torch::Tensor> results;
    const auto parts = rows.split_with_sizes(uneven_counts());
    for (size_t expert = 0; expert < parts.size(); ++expert) {
      const auto number = static_cast<int64_t>(expert);
      results.push_back(
          at::linear(parts[expert], weight[number], bias.defined() ? bias[number] : torch::Tensor()));
    }
    return at::cat(results, 0);
  }
  std::vector<torch::Tensor> inputs() const {
    return bias.defined() ? std::vector<torch::Tensor>{rows, weight, bias}
                          : std::vector<torch::Tensor>{rows, weight};
  }

  torch::Tensor rows, weight, bias, gradient;
};

void expect_close(const std::vector<torch::Tensor>& found, const std::vector<torch::Tensor>& expected,
                  double tolerance = 1e-12) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(torch::allclose(found[i], expected[i], tolerance, tolerance)) << i << "\n" << found[i];
}

class ExpertLinearTest : public ::testing::TestWithParam<bool> {};

TEST_P(ExpertLinearTest, IsTheLinearLayerOfEachExpert) {
  const LinearCase tested(GetParam());
  expect_close({tested.of_all()}, {tested.of_each()});
  expect_close(torch::autograd::grad({tested.of_all()}, tested.inputs(), {tested.gradient}),
               torch::autograd::grad({tested.of_each()}, tested.inputs(), {tested.gradient}));
}

TEST_P(ExpertLinearTest, HasGradientsOfGradients) {
  const LinearCase tested(GetParam());
  const auto second = [&](const torch::Tensor& result) {
    auto gradient = tested.gradient.clone().requires_grad_();
    const auto first = torch::autograd::grad({result}, {tested.rows, tested.weight}, {gradient},
                                             /*retain_graph=*/true, /*create_graph=*/true);
    return torch::autograd::grad({first[0].square().sum() + first[1].square().sum()},
                                 {tested.rows, tested.weight, gradient});
  };
  expect_close(second(tested.of_all()), second(tested.of_each()));
}

// As if layers were frozen, and as the two halves of a pipeline's backward ask.
TEST_P(ExpertLinearTest, ComputesTheGradientsThatAreAskedForAlone) {
  const LinearCase tested(GetParam());
  for (const auto& input : tested.inputs()) {
    expect_close(torch::autograd::grad({tested.of_all()}, {input}, {tested.gradient}),
                 torch::autograd::grad({tested.of_each()}, {input}, {tested.gradient}));
  }
  LinearCase frozen(GetParam());
  frozen.weight.set_requires_grad(false);
  expect_close(torch::autograd::grad({frozen.of_all()}, {frozen.rows}, {frozen.gradient}),
               torch::autograd::grad({frozen.of_each()}, {frozen.rows}, {frozen.gradient}));
}

TEST_P(ExpertLinearTest, CastsItsOperandsAsLinearLayersDo) {
  const LinearCase tested(GetParam(), torch::kFloat);
  torch::Tensor found, expected;
  {
    const AutocastGuard autocast(torch::kCPU, torch::kBFloat16);
    found = tested.of_all();
    expected = tested.of_each();
  }
  EXPECT_EQ(found.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(torch::equal(found, expected));
  const auto gradient = tested.gradient.to(torch::kBFloat16);
  const auto of_found = torch::autograd::grad({found}, tested.inputs(), {gradient});
  EXPECT_EQ(of_found[1].scalar_type(), torch::kFloat);
  expect_close(of_found, torch::autograd::grad({expected}, tested.inputs(), {gradient}), 1e-2);
}

INSTANTIATE_TEST_SUITE_P(With, ExpertLinearTest, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "Bias" : "NoBias"; });

TEST(ExpertLinear, OfNoRowsHasGradientsOfZero) {
  auto rows = torch::zeros({0, kInputs}).requires_grad_();
  auto weight = torch::randn({2, kOutputs, kInputs}).requires_grad_();
  const auto result = expert_linear(rows, weight, {}, {0, 0});
  EXPECT_EQ(result.sizes(), (std::vector<int64_t>{0, kOutputs}));
  const auto gradients = torch::autograd::grad({result}, {rows, weight}, {torch::zeros({0, kOutputs})});
  EXPECT_EQ(gradients[0].sizes(), rows.sizes());
  EXPECT_TRUE(torch::equal(gradients[1], torch::zeros_like(weight)));
}

}  // namespace
}  // namespace lockstep
