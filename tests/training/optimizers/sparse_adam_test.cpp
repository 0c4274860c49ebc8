#include "lockstep/training/optimizers/sparse_adam.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/serialize.h>

#include <cmath>
#include <sstream>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "lockstep/tests/support/optimizer_comparison.h"
#include "lockstep/tests/support/row_gradients.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::optim::Adam;
using torch::optim::AdamOptions;

SparseAdamOptions some_options() {
  return SparseAdamOptions(0.1).betas({0.8, 0.95}).eps(1e-3);
}

void step_with(SparseAdam& optimizer, const torch::Tensor& table, const torch::Tensor& gradient) {
  table.mutable_grad() = gradient;
  optimizer.step();
}

TEST(SparseAdamTest, EqualsTorchAdamWhereGradientsHaveAllRows) {
  for (const auto dtype : {torch::kFloat64, torch::kFloat32}) {
    auto sparse_table = make_table(dtype);
    auto dense_table = make_table(dtype);
    SparseAdam sparse({sparse_table}, some_options());
    Adam dense({dense_table}, AdamOptions(0.1).betas(std::make_tuple(0.8, 0.95)).eps(1e-3));
    for (int step = 0; step < kComparedSteps; ++step) {
      // No element is 0.
      const auto gradient = sparse_gradient(dtype, step).to_dense() + 0.25;
      step_with(sparse, sparse_table, gradient.to_sparse(1));
      dense_table.mutable_grad() = gradient;
      dense.step();
    }
    EXPECT_LE(largest_distance({sparse_table}, {dense_table}), tolerance(dtype));
  }
}

/// Adam's formulas, one row at a time, in float64.
class AdamOfRows {
 public:
  explicit AdamOfRows(torch::Tensor table)
      : table_(std::move(table)), first_(torch::zeros_like(table_)), second_(torch::zeros_like(table_)) {}

  void step(const torch::Tensor& gradient) {
    ++step_;
    const auto coalesced = gradient.coalesce();
    for (int64_t i = 0; i < coalesced.indices().size(1); ++i) {
      const auto row = coalesced.indices()[0][i].item<int64_t>();
      const auto values = coalesced.values()[i];
      first_[row] = 0.8 * first_[row] + 0.2 * values;
      second_[row] = 0.95 * second_[row] + 0.05 * values * values;
      const auto first = first_[row] / (1 - std::pow(0.8, step_));
      const auto second = second_[row] / (1 - std::pow(0.95, step_));
      table_[row] -= 0.1 * first / (second.sqrt() + 1e-3);
    }
  }
  const torch::Tensor& table() const { return table_; }

 private:
  torch::Tensor table_;
  torch::Tensor first_;
  torch::Tensor second_;
  int step_ = 0;
};

TEST(SparseAdamTest, StepsTheRowsOfAGradientAlone) {
  AdamOfRows expected(make_table(torch::kFloat64).detach().clone());
  const auto table = make_table(torch::kFloat64);
  const auto transposed = make_table(torch::kFloat64).detach().t().contiguous().t().requires_grad_();
  SparseAdam optimizer({table}, some_options());
  SparseAdam by_operators({transposed}, some_options());
  for (int step = 0; step < kComparedSteps; ++step) {
    const auto gradient = sparse_gradient(torch::kFloat64, step);
    step_with(optimizer, table, gradient);
    step_with(by_operators, transposed, gradient);
    expected.step(gradient);
  }
  EXPECT_LE(largest_distance({table.detach()}, {expected.table()}), 1e-12);
  EXPECT_LE(largest_distance({transposed.detach()}, {expected.table()}), 1e-12);
}

TEST(SparseAdamTest, MaximizeClimbs) {
  const auto weight = torch::ones({2, 1}, torch::requires_grad());
  SparseAdam optimizer({weight}, SparseAdamOptions(0.5).maximize(true));
  step_with(optimizer, weight, torch::ones({2, 1}).to_sparse(1));
  EXPECT_TRUE(torch::allclose(weight, torch::full({2, 1}, 1.5)));
}

TEST(SparseAdamTest, ResumesIdenticallyFromASavedState) {
  const auto table = make_table(torch::kFloat32);
  const auto other = make_table(torch::kFloat32);
  SparseAdam trained({table}, some_options());
  SparseAdam resumed({other});
  for (int step = 0; step < 5; ++step) step_with(trained, table, sparse_gradient(torch::kFloat32, step));
  std::stringstream stream;
  torch::save(trained, stream);
  torch::load(resumed, stream);
  {
    const torch::NoGradGuard no_grad;
    other.copy_(table);
  }
  for (int step = 5; step < 10; ++step) {
    step_with(trained, table, sparse_gradient(torch::kFloat32, step));
    step_with(resumed, other, sparse_gradient(torch::kFloat32, step));
  }
  EXPECT_EQ(largest_distance({table}, {other}), 0);
}

TEST(SparseAdamTest, RefusesDenseGradientsAndOptionsOutOfRange) {
  const auto table = make_table(torch::kFloat32);
  SparseAdam optimizer({table});
  table.mutable_grad() = torch::ones({kTableRows, kTableColumns});
  EXPECT_THAT([&] { optimizer.step(); }, ThrowsMessage<std::invalid_argument>(
                                             HasSubstr("[SparseAdam] expected a gradient that is sparse")));
  EXPECT_THAT(([&] {
                SparseAdam({table}, SparseAdamOptions(0.1).betas({0.9, 1.0}));
              }),
              ThrowsMessage<std::invalid_argument>(HasSubstr("betas[1] to be at least 0 and below 1")));
}

}  // namespace
}  // namespace lockstep
