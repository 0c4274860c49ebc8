#include "lockstep/runtime/gradients/gradient_clipping.h"

#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

std::vector<at::Tensor> parameters_with_gradients(double scale) {
  auto generator = at::detail::createCPUGenerator(3);
  std::vector<at::Tensor> parameters;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{4, 3}, {7}, {}, {2, 2, 2}}) {
    parameters.push_back(torch::zeros(shape).requires_grad_());
    parameters.back().mutable_grad() = torch::randn(shape, generator) * scale;
  }
  parameters.push_back(torch::zeros({3}).requires_grad_());  // without a gradient
  return parameters;
}

TEST(GradientClipping, GivesTheNormAndGradientsOfClipGradNorm) {
  for (const double scale : {0.01, 1.0, 100.0}) {
    for (const double max_norm : {0.0, 0.5, 3.0}) {
      const auto given = parameters_with_gradients(scale);
      const auto expected = parameters_with_gradients(scale);
      const double norm = torch::nn::utils::clip_grad_norm_(expected, max_norm);
      EXPECT_NEAR(clip_gradients(given, max_norm).item<double>(), norm, 1e-5 * norm);
      for (size_t i = 0; i + 1 < given.size(); ++i)
        EXPECT_TRUE(torch::allclose(given[i].grad(), expected[i].grad(), 1e-5, 1e-8));
      EXPECT_FALSE(given.back().grad().defined());
    }
  }
}

TEST(GradientClipping, OnlyMeasuresWithAnInfiniteNorm) {
  const auto given = parameters_with_gradients(100);
  const auto before = parameters_with_gradients(100);
  EXPECT_GT(clip_gradients(given, std::numeric_limits<double>::infinity()).item<double>(), 100);
  for (size_t i = 0; i + 1 < given.size(); ++i) EXPECT_TRUE(torch::equal(given[i].grad(), before[i].grad()));
}

TEST(GradientClipping, TakesDtypesAndSparseGradientsTogether) {
  auto dense = torch::zeros({2}, torch::kDouble).requires_grad_();
  dense.mutable_grad() = torch::tensor({3.0, 0.0}, torch::kDouble);
  auto sparse = torch::zeros({5, 1}).requires_grad_();
  sparse.mutable_grad() =
      torch::sparse_coo_tensor(torch::tensor({{1, 3}}), torch::tensor({{4.F}, {12.F}}), {5, 1}).coalesce();
  // The norm of (3, 4, 12) is 13.
  EXPECT_NEAR(clip_gradients({dense, sparse}, 1.3).item<double>(), 13, 1e-5);
  EXPECT_NEAR(dense.grad()[0].item<double>(), 0.3, 1e-6);
  const auto rows = sparse.grad().to_dense();
  EXPECT_NEAR(rows[1].item<double>(), 0.4, 1e-6);
  EXPECT_NEAR(rows[3].item<double>(), 1.2, 1e-6);
}

TEST(GradientClipping, CountsRowsOfASparseGradientThatCameTwiceByTheirSum) {
  auto sparse = torch::zeros({5, 1}).requires_grad_();
  sparse.mutable_grad() =
      torch::sparse_coo_tensor(torch::tensor({{1, 3, 1}}), torch::tensor({{1.F}, {4.F}, {2.F}}), {5, 1});
  // The norm of (1 + 2, 4) is 5.
  EXPECT_NEAR(clip_gradients({sparse}, 0.5).item<double>(), 5, 1e-5);
  EXPECT_TRUE(
      torch::allclose(sparse.grad().to_dense().flatten(), torch::tensor({0.F, 0.3F, 0.F, 0.4F, 0.F})));
}

TEST(GradientClipping, IsZeroWithoutGradientsAndRefusesNormsBelowZero) {
  EXPECT_EQ(clip_gradients({}, 1).item<double>(), 0);
  EXPECT_EQ(clip_gradients({torch::zeros({2}).requires_grad_()}, 1).item<double>(), 0);
  EXPECT_THROW(clip_gradients({}, -1), InvalidArgument);
  EXPECT_THROW(clip_gradients({}, std::nan("")), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
