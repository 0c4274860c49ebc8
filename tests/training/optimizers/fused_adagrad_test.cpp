#include "lockstep/training/optimizers/fused_adagrad.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/tests/support/optimizer_comparison.h"
#include "lockstep/tests/support/row_gradients.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::optim::Adagrad;
using torch::optim::AdagradOptions;

TEST(FusedAdagradTest, EqualsTorchAdagrad) {
  expect_equal<FusedAdagrad, Adagrad>(FusedAdagradOptions(0.1), AdagradOptions(0.1));
}

TEST(FusedAdagradTest, EqualsTorchAdagradWithAllOptions) {
  expect_equal<FusedAdagrad, Adagrad>(
      FusedAdagradOptions(0.1).lr_decay(0.05).weight_decay(0.1).initial_accumulator_value(0.5).eps(1e-3),
      AdagradOptions(0.1).lr_decay(0.05).weight_decay(0.1).initial_accumulator_value(0.5).eps(1e-3));
}

TEST(FusedAdagradTest, EqualsTorchAdagradUnderALearningRateSchedule) {
  expect_equal<FusedAdagrad, Adagrad>(FusedAdagradOptions(0.1), AdagradOptions(0.1), /*scheduled=*/true);
}

TEST(FusedAdagradTest, KeepsTheOptionsOfParameterGroupsApart) {
  const auto fused_parameters = make_parameters(torch::kFloat64);
  const auto plain_parameters = make_parameters(torch::kFloat64);
  FusedAdagrad fused(two_groups(fused_parameters, FusedAdagradOptions(0.1).eps(0.1)), 1e-2);
  Adagrad plain(two_groups(plain_parameters, AdagradOptions(0.1).eps(0.1)), 1e-2);
  expect_equal_steps(fused, fused_parameters, plain, plain_parameters);
}

TEST(FusedAdagradTest, MaximizeClimbs) {
  for (const bool is_sparse : {false, true}) {
    const auto weight = torch::ones({2, 1}, torch::requires_grad());
    FusedAdagrad optimizer({weight}, FusedAdagradOptions(0.5).maximize(true));
    weight.mutable_grad() = is_sparse ? torch::ones({2, 1}).to_sparse(1) : torch::ones({2, 1});
    optimizer.step();
    EXPECT_TRUE(torch::allclose(weight, torch::full({2, 1}, 1.5)));
  }
}

TEST(FusedAdagradTest, OfSparseGradientsEqualsTorchAdagrad) {
  for (const auto dtype : {torch::kFloat64, torch::kFloat32}) {
    auto fused_table = make_table(dtype);
    auto plain_table = make_table(dtype);
    FusedAdagrad fused({fused_table}, FusedAdagradOptions(0.1).lr_decay(0.05).eps(1e-3));
    Adagrad plain({plain_table}, AdagradOptions(0.1).lr_decay(0.05).eps(1e-3));
    for (int step = 0; step < kComparedSteps; ++step) {
      fused_table.mutable_grad() = sparse_gradient(dtype, step);
      plain_table.mutable_grad() = sparse_gradient(dtype, step);
      fused.step();
      plain.step();
    }
    EXPECT_LE(largest_distance({fused_table}, {plain_table}), tolerance(dtype));
    EXPECT_GT(largest_distance({fused_table}, {make_table(dtype)}), 0.01);
  }
}

TEST(FusedAdagradTest, TakesSparseGradientsOfTablesThatLieOtherwise) {
  const auto table = make_table(torch::kFloat64);
  auto transposed = table.detach().t().contiguous().t().requires_grad_();
  FusedAdagrad of_rows({table}, 0.1);
  FusedAdagrad of_columns({transposed}, 0.1);
  for (int step = 0; step < kComparedSteps; ++step) {
    table.mutable_grad() = sparse_gradient(torch::kFloat64, step);
    transposed.mutable_grad() = sparse_gradient(torch::kFloat64, step);
    of_rows.step();
    of_columns.step();
  }
  EXPECT_LE(largest_distance({table}, {transposed}), 1e-12);
}

TEST(FusedAdagradTest, RemembersNothingOfAParameterWithoutAGradient) {
  // A table of 4 TiB in the memory of one number.
  const auto table = torch::zeros({1, 1}).expand({int64_t{1} << 34, 64}).requires_grad_();
  FusedAdagrad optimizer({table});
  optimizer.step();
  EXPECT_TRUE(optimizer.state().empty());
}

TEST(FusedAdagradTest, ResumesIdenticallyFromASavedState) {
  const auto first = make_parameters(torch::kFloat32);
  const auto second = make_parameters(torch::kFloat32);
  FusedAdagrad trained(first, FusedAdagradOptions(0.1).lr_decay(0.1));
  FusedAdagrad resumed(second, 0.5);
  expect_resumes(trained, first, resumed, second, 0);
}

TEST(FusedAdagradTest, ExchangesArchivesWithTorchAdagrad) {
  {
    const auto first = make_parameters(torch::kFloat64);
    const auto second = make_parameters(torch::kFloat64);
    Adagrad trained(first, AdagradOptions(0.1).lr_decay(0.1));
    FusedAdagrad resumed(second);
    expect_resumes(trained, first, resumed, second, 1e-12);
  }
  // LibTorch's Adagrad needs a state for each parameter, so all of them have had a gradient.
  const auto first = std::vector<torch::Tensor>{make_parameters(torch::kFloat64).at(0)};
  const auto second = std::vector<torch::Tensor>{make_parameters(torch::kFloat64).at(0)};
  FusedAdagrad trained(first, FusedAdagradOptions(0.1).lr_decay(0.1));
  Adagrad resumed(second, 0.5);
  expect_resumes(trained, first, resumed, second, 1e-12);
}

TEST(FusedAdagradTest, RefusesWhatItCannotDo) {
  const auto table = make_table(torch::kFloat32);
  EXPECT_THAT(([&] { FusedAdagrad({table}, FusedAdagradOptions(-1)); }),
              ThrowsMessage<std::invalid_argument>(HasSubstr("[FusedAdagrad] expected lr to be at least 0")));
  EXPECT_THAT(([&] { FusedAdagrad({table}, FusedAdagradOptions(1).eps(-1)); }),
              ThrowsMessage<std::invalid_argument>(HasSubstr("expected eps to be at least 0")));
  FusedAdagrad decaying({table}, FusedAdagradOptions(1).weight_decay(0.1));
  table.mutable_grad() = sparse_gradient(torch::kFloat32, 0);
  EXPECT_THAT([&] { decaying.step(); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("expected no weight_decay with sparse")));
  FusedAdagrad optimizer({table});
  table.mutable_grad() = torch::ones({kTableRows, kTableColumns}).to_sparse(2);
  EXPECT_THAT([&] { optimizer.step(); }, ThrowsMessage<std::invalid_argument>(
                                             HasSubstr("expected a gradient that is sparse in its rows")));
}

}  // namespace
}  // namespace lockstep
