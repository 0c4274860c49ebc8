#include "lockstep/training/optimizers/fused_adam.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tests/support/optimizer_comparison.h"

namespace lockstep {
namespace {

using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;

// Small tensors: on a machine whose cores are busy, waiting for a second thread takes longer than the work.
class OneThread : public ::testing::Environment {
 public:
  void SetUp() override { torch::set_num_threads(1); }
};

const auto* const kOneThread = ::testing::AddGlobalTestEnvironment(new OneThread);

TEST(FusedAdamTest, EqualsTorchAdam) {
  expect_equal<FusedAdam, Adam>(FusedAdamOptions(1e-2), AdamOptions(1e-2));
}

TEST(FusedAdamTest, EqualsTorchAdamWithEveryOptionChanged) {
  const auto betas = std::make_tuple(0.8, 0.99);
  expect_equal<FusedAdam, Adam>(FusedAdamOptions(1e-2).betas(betas).eps(1e-6).weight_decay(0.1).amsgrad(true),
                                AdamOptions(1e-2).betas(betas).eps(1e-6).weight_decay(0.1).amsgrad(true));
}

TEST(FusedAdamTest, EqualsTorchAdamUnderALearningRateSchedule) {
  expect_equal<FusedAdam, Adam>(FusedAdamOptions(1e-2), AdamOptions(1e-2), /*scheduled=*/true);
}

TEST(FusedAdamWTest, EqualsTorchAdamW) {
  EXPECT_EQ(FusedAdamWOptions().weight_decay(), AdamWOptions().weight_decay());
  expect_equal<FusedAdamW, AdamW>(FusedAdamWOptions(1e-2), AdamWOptions(1e-2));
}

TEST(FusedAdamWTest, EqualsTorchAdamWWithEveryOptionChanged) {
  const auto betas = std::make_tuple(0.8, 0.99);
  expect_equal<FusedAdamW, AdamW>(
      FusedAdamWOptions(1e-2).betas(betas).eps(1e-6).weight_decay(0.1).amsgrad(true),
      AdamWOptions(1e-2).betas(betas).eps(1e-6).weight_decay(0.1).amsgrad(true));
}

/// The optimizer's state of a parameter; empty before its first step.
template <typename Optimizer>
std::vector<torch::Tensor> state_of(Optimizer& optimizer, const torch::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end()) return {};
  const auto& state = static_cast<const FusedAdamParamState&>(*found->second);
  return {state.step(), state.exp_avg(), state.exp_avg_sq(), state.max_exp_avg_sq()};
}

TEST(FusedAdamTest, ASkippedStepLeavesEverythingBitEqual) {
  for (const bool amsgrad : {false, true})
    expect_skips<FusedAdam>(FusedAdamOptions(1e-2).weight_decay(0.1).amsgrad(amsgrad), state_of<FusedAdam>);
}

TEST(FusedAdamWTest, ASkippedStepLeavesEverythingBitEqual) {
  for (const bool amsgrad : {false, true}) {
    expect_skips<FusedAdamW>(FusedAdamWOptions(1e-2).weight_decay(0.1).amsgrad(amsgrad),
                             state_of<FusedAdamW>);
  }
}

TEST(FusedAdamTest, KeepsTheOptionsOfParameterGroupsApart) {
  const auto fused_parameters = make_parameters(torch::kFloat64);
  const auto plain_parameters = make_parameters(torch::kFloat64);
  FusedAdam fused(two_groups(fused_parameters, FusedAdamOptions(0.1).weight_decay(0.5)),
                  FusedAdamOptions(1e-3));
  Adam plain(two_groups(plain_parameters, AdamOptions(0.1).weight_decay(0.5)), AdamOptions(1e-3));
  expect_equal_steps(fused, fused_parameters, plain, plain_parameters);
}

TEST(FusedAdamTest, StepsParametersOfTwoTypesInOneGroup) {
  auto mixed = [] {
    auto parameters = make_parameters(torch::kFloat64);
    for (const auto& parameter : make_parameters(torch::kFloat32)) parameters.push_back(parameter);
    return parameters;
  };
  const auto fused_parameters = mixed();
  const auto plain_parameters = mixed();
  FusedAdam fused(fused_parameters, 1e-2);
  Adam plain(plain_parameters, 1e-2);
  for (int step = 0; step < kComparedSteps; ++step) {
    set_gradients(fused_parameters, step);
    set_gradients(plain_parameters, step);
    fused.step();
    plain.step();
  }
  EXPECT_LE(largest_distance(fused_parameters, plain_parameters), 1e-6);
}

TEST(FusedAdamTest, MaximizeStepsAgainstTheNegatedGradient) {
  const auto maximized = make_parameters(torch::kFloat64);
  const auto minimized = make_parameters(torch::kFloat64);
  FusedAdam maximizing(maximized, FusedAdamOptions(1e-2).maximize(true));
  FusedAdam minimizing(minimized, 1e-2);
  for (int step = 0; step < 3; ++step) {
    set_gradients(maximized, step);
    set_gradients(minimized, step);
    for (const auto& parameter : minimized) {
      if (parameter.grad().defined()) parameter.mutable_grad() = -parameter.grad();
    }
    maximizing.step();
    minimizing.step();
  }
  EXPECT_LE(largest_distance(maximized, minimized), 1e-15);
}

TEST(FusedAdamTest, TakesAStridedStateOrGradientInTheLayoutOfItsParameter) {
  // The fused operators walk raw memory, so a transposed gradient would silently update the wrong elements.
  const auto fused = torch::zeros({3, 4}, torch::requires_grad());
  const auto plain = torch::zeros({3, 4}, torch::requires_grad());
  FusedAdam fused_optimizer({fused}, 0.1);
  Adam plain_optimizer({plain}, 0.1);
  fused.mutable_grad() = torch::arange(12.F).view({4, 3}).t();
  plain.mutable_grad() = torch::arange(12.F).view({4, 3}).t();
  fused_optimizer.step();
  plain_optimizer.step();
  EXPECT_TRUE(torch::allclose(fused, plain));
}

TEST(FusedAdamTest, ResumesIdenticallyFromASavedState) {
  for (const bool amsgrad : {false, true}) {
    const auto first = make_parameters(torch::kFloat32);
    const auto second = make_parameters(torch::kFloat32);
    FusedAdam trained(first, FusedAdamOptions(1e-2).amsgrad(amsgrad).weight_decay(0.1));
    FusedAdam resumed(second, FusedAdamOptions(0.5));
    expect_resumes(trained, first, resumed, second, 0);
  }
}

TEST(FusedAdamWTest, ResumesIdenticallyFromASavedState) {
  const auto first = make_parameters(torch::kFloat32);
  const auto second = make_parameters(torch::kFloat32);
  FusedAdamW trained(first, FusedAdamWOptions(1e-2).weight_decay(0.1));
  FusedAdamW resumed(second, FusedAdamWOptions(0.5));
  expect_resumes(trained, first, resumed, second, 0);
}

TEST(FusedAdamTest, ExchangesArchivesWithTorchAdam) {
  const auto options = AdamOptions(1e-2).amsgrad(true).weight_decay(0.1);
  const auto fused_options = FusedAdamOptions(1e-2).amsgrad(true).weight_decay(0.1);
  {
    const auto first = make_parameters(torch::kFloat64);
    const auto second = make_parameters(torch::kFloat64);
    Adam trained(first, options);
    FusedAdam resumed(second);
    expect_resumes(trained, first, resumed, second, 1e-12);
  }
  const auto first = make_parameters(torch::kFloat64);
  const auto second = make_parameters(torch::kFloat64);
  FusedAdam trained(first, fused_options);
  Adam resumed(second);
  expect_resumes(trained, first, resumed, second, 1e-12);
}

TEST(FusedAdamTest, MovesIntoAVectorWithItsState) {
  const auto moved_parameters = make_parameters(torch::kFloat64);
  const auto plain_parameters = make_parameters(torch::kFloat64);
  std::vector<FusedAdam> optimizers;
  optimizers.push_back(FusedAdam(moved_parameters, 1e-2));
  set_gradients(moved_parameters, 0);
  optimizers[0].step();
  optimizers.push_back(FusedAdam(make_parameters(torch::kFloat32), 1e-2));  // moves the first
  set_gradients(moved_parameters, 1);
  optimizers[0].step();
  Adam plain(plain_parameters, 1e-2);
  for (int step = 0; step < 2; ++step) {
    set_gradients(plain_parameters, step);
    plain.step();
  }
  EXPECT_LE(largest_distance(moved_parameters, plain_parameters), 1e-12);
}

TEST(FusedAdamTest, EvaluatesItsClosureWithGradientsAndReturnsTheLoss) {
  const auto weight = torch::ones({2}, torch::requires_grad());
  FusedAdam optimizer({weight}, 0.1);
  torch::NoGradGuard no_grad;
  const auto loss = optimizer.step([&] {
    optimizer.zero_grad();
    auto value = (weight * 3).sum();
    value.backward();
    return value;
  });
  EXPECT_EQ(loss.item<float>(), 6);
  EXPECT_TRUE(torch::allclose(weight, torch::full({2}, 0.9)));
}

TEST(FusedAdamTest, NamesTheParameterItCannotStep) {
  const auto message = [](const torch::Tensor& parameter, const torch::Tensor& gradient) -> std::string {
    const auto fine = torch::ones({2}, torch::requires_grad());
    FusedAdam optimizer({fine, parameter}, 0.1);
    parameter.mutable_grad() = gradient;
    try {
      optimizer.step();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message(torch::ones({2, 2}), torch::ones({2, 2}).to_sparse()),
              HasSubstr("[FusedAdam] expected a dense gradient for parameter 1 of group 0, but got Sparse"));
  EXPECT_THAT(
      message(torch::ones({4, 4}).slice(1, 0, 2), torch::ones({4, 2})),
      HasSubstr("expected a tensor without overlaps and gaps for parameter 1 of group 0, but got [4, 1]"));
}

TEST(FusedAdamTest, RefusesOptionsByName) {
  const auto message = [](const FusedAdamOptions& options) -> std::string {
    try {
      FusedAdam optimizer({torch::ones({2})}, options);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message(FusedAdamOptions(-1)),
              HasSubstr("[FusedAdam] expected lr to be at least 0, but got -1"));
  EXPECT_THAT(message(FusedAdamOptions().eps(-1)), HasSubstr("expected eps to be at least 0"));
  EXPECT_THAT(message(FusedAdamOptions().betas({1, 0.9})),
              HasSubstr("expected betas[0] to be in [0, 1), but got 1"));
  EXPECT_THAT(message(FusedAdamOptions().betas({0, 2})),
              HasSubstr("expected betas[1] to be in [0, 1), but got 2"));
  EXPECT_THAT(message(FusedAdamOptions().weight_decay(-2)),
              HasSubstr("expected weight_decay to be at least 0"));
  const auto parameters = make_parameters(torch::kFloat32);
  EXPECT_THROW(FusedAdam(two_groups(parameters, AdamOptions(0.1))), std::invalid_argument);
  EXPECT_THROW(FusedAdamW(std::vector<torch::Tensor>{torch::ones({2})}, -1), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
