// The rows of experts. Oracle: LibTorch's index_add() and products, which differentiate themselves.
#include "lockstep/strategies/parallel/internal/expert_rows.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace lockstep {
namespace {

constexpr int64_t kTokens = 50;
constexpr int64_t kChoices = 3;

/// The places of rows in a mixed order, without every choice that `drops` divides; 0: all have a row.
ExpertRows mixed_places(int64_t drops) {
  std::vector<int64_t> choices;
  for (int64_t i = 0; i < kTokens * kChoices; ++i) {
    const int64_t choice = i * 77 % (kTokens * kChoices);
    const bool is_of_last_token = choice / kChoices == kTokens - 1;  // which has no rows
    if (drops == 0 || (choice % drops != 0 && !is_of_last_token)) choices.push_back(choice);
  }
  ExpertRows places{.choices = torch::tensor(choices)};
  places.tokens = places.choices.div(kChoices, "floor");
  const auto count = static_cast<int64_t>(choices.size());
  places.rows = torch::full({kTokens * kChoices}, count)
                    .index_copy(0, places.choices, torch::arange(count))
                    .view({kTokens, kChoices});
  return places;
}

struct RowsCase {
  int64_t features = 0;
  int64_t drops = 0;
  at::ScalarType dtype = at::kDouble;
  at::ScalarType weight_dtype = at::kDouble;
};

struct RowsInputs {
  explicit RowsInputs(const RowsCase& tested) : places(mixed_places(tested.drops)) {
    torch::manual_seed(7);
    const int64_t count = places.choices.size(0);
    tokens = torch::randn({kTokens, tested.features}, tested.dtype).requires_grad_();
    rows = torch::randn({count, tested.features}, tested.dtype).requires_grad_();
    weights = torch::rand({kTokens * kChoices}, tested.weight_dtype).requires_grad_();
    gradient = torch::randn({kTokens, tested.features}, tested.weight_dtype).requires_grad_();
  }
  torch::Tensor sums() const { return weighted_sums_of_rows(rows, weights, places); }
  torch::Tensor expected_sums() const {
    const auto weighted = rows * weights.index_select(0, places.choices).unsqueeze(1);
    return torch::zeros({kTokens, rows.size(1)}, weighted.options()).index_add(0, places.tokens, weighted);
  }

  ExpertRows places;
  torch::Tensor tokens, rows, weights, gradient;
};

void expect_near(const std::vector<torch::Tensor>& found, const std::vector<torch::Tensor>& expected,
                 double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].scalar_type(), expected[i].scalar_type()) << i;
    EXPECT_TRUE(torch::allclose(found[i], expected[i], tolerance, tolerance)) << i;
  }
}

class ExpertRowsTest : public ::testing::TestWithParam<RowsCase> {
 protected:
  double tolerance() const {
    if (GetParam().dtype == at::kBFloat16) return 2e-2;
    return GetParam().dtype == at::kFloat ? 1e-5 : 1e-12;
  }
};

TEST_P(ExpertRowsTest, WeightsAndSumsTheRowsOfEachToken) {
  const RowsInputs in(GetParam());
  expect_near({in.sums()}, {in.expected_sums()}, tolerance());
  expect_near(torch::autograd::grad({in.sums()}, {in.rows, in.weights}, {in.gradient.detach()}),
              torch::autograd::grad({in.expected_sums()}, {in.rows, in.weights}, {in.gradient.detach()}),
              tolerance());
}

TEST_P(ExpertRowsTest, TakesTheRowOfEachToken) {
  const RowsInputs in(GetParam());
  const auto rows = rows_of_tokens(in.tokens, in.places);
  const auto expected = in.tokens.index_select(0, in.places.tokens);
  EXPECT_TRUE(torch::equal(rows, expected));
  expect_near(torch::autograd::grad({rows}, {in.tokens}, {in.rows.detach()}),
              torch::autograd::grad({expected}, {in.tokens}, {in.rows.detach()}), tolerance());
}

TEST_P(ExpertRowsTest, HasGradientsOfGradients) {
  const RowsInputs in(GetParam());
  const auto second = [&](const torch::Tensor& sums) {
    const auto first = torch::autograd::grad({sums}, {in.rows, in.weights}, {in.gradient},
                                             /*retain_graph=*/true, /*create_graph=*/true);
    return torch::autograd::grad({first[0].square().sum() + first[1].square().sum()},
                                 {in.rows, in.weights, in.gradient});
  };
  expect_near(second(in.sums()), second(in.expected_sums()), 10 * tolerance());
}

INSTANTIATE_TEST_SUITE_P(
    Of, ExpertRowsTest,
    ::testing::Values(RowsCase{.features = 5}, RowsCase{.features = 48, .drops = 4},
                      RowsCase{.features = 3000, .drops = 2},  // for several threads
                      RowsCase{.features = 37, .drops = 5, .dtype = at::kFloat, .weight_dtype = at::kFloat},
                      RowsCase{
                          .features = 16, .drops = 4, .dtype = at::kBFloat16, .weight_dtype = at::kFloat}));

// As after an operation on a gradient that sum() has expanded.
TEST(ExpertRows, TakesGradientsAndRowsThatAreNotContiguous) {
  const RowsInputs in({.features = 6, .drops = 4});
  const auto rows = in.rows.detach().t().contiguous().t().requires_grad_();
  const auto sums = weighted_sums_of_rows(rows, in.weights, in.places);
  EXPECT_TRUE(torch::equal(sums, in.sums()));
  const auto one = torch::ones({1, 1}, torch::kDouble).expand({kTokens, 6});
  expect_near(torch::autograd::grad({sums}, {rows, in.weights}, {one}),
              torch::autograd::grad({in.expected_sums()}, {in.rows, in.weights}, {one}), 1e-12);
}

}  // namespace
}  // namespace lockstep
