#include "lockstep/training/optimizers/fused_sgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tests/support/optimizer_comparison.h"

namespace lockstep {
namespace {

using torch::optim::SGD;
using torch::optim::SGDOptions;

TEST(FusedSgdTest, EqualsTorchSgd) {
  expect_equal<FusedSgd, SGD>(FusedSgdOptions(0.1), SGDOptions(0.1));
}

TEST(FusedSgdTest, EqualsTorchSgdWithMomentumDampeningAndWeightDecay) {
  expect_equal<FusedSgd, SGD>(FusedSgdOptions(0.1).momentum(0.9).dampening(0.3).weight_decay(0.1),
                              SGDOptions(0.1).momentum(0.9).dampening(0.3).weight_decay(0.1));
}

TEST(FusedSgdTest, EqualsTorchSgdWithNesterovMomentum) {
  expect_equal<FusedSgd, SGD>(FusedSgdOptions(0.1).momentum(0.9).nesterov(true),
                              SGDOptions(0.1).momentum(0.9).nesterov(true));
}

TEST(FusedSgdTest, EqualsTorchSgdUnderALearningRateSchedule) {
  expect_equal<FusedSgd, SGD>(FusedSgdOptions(0.1).momentum(0.9), SGDOptions(0.1).momentum(0.9),
                              /*scheduled=*/true);
}

TEST(FusedSgdTest, KeepsTheOptionsOfParameterGroupsApart) {
  const auto fused_parameters = make_parameters(torch::kFloat64);
  const auto plain_parameters = make_parameters(torch::kFloat64);
  FusedSgd fused(two_groups(fused_parameters, FusedSgdOptions(0.1).momentum(0.9)), 1e-2);
  SGD plain(two_groups(plain_parameters, SGDOptions(0.1).momentum(0.9)), 1e-2);
  expect_equal_steps(fused, fused_parameters, plain, plain_parameters);
}

TEST(FusedSgdTest, MaximizeClimbs) {
  const auto weight = torch::ones({2}, torch::requires_grad());
  FusedSgd optimizer({weight}, FusedSgdOptions(0.5).maximize(true));
  weight.mutable_grad() = torch::ones({2});
  optimizer.step();
  EXPECT_TRUE(torch::allclose(weight, torch::full({2}, 1.5)));
}

TEST(FusedSgdTest, ResumesIdenticallyFromASavedState) {
  const auto first = make_parameters(torch::kFloat32);
  const auto second = make_parameters(torch::kFloat32);
  FusedSgd trained(first, FusedSgdOptions(0.1).momentum(0.9).weight_decay(0.1));
  FusedSgd resumed(second, 0.5);
  expect_resumes(trained, first, resumed, second, 0);
}

TEST(FusedSgdTest, ExchangesArchivesWithTorchSgd) {
  {
    const auto first = make_parameters(torch::kFloat64);
    const auto second = make_parameters(torch::kFloat64);
    SGD trained(first, SGDOptions(0.1).momentum(0.9));
    FusedSgd resumed(second);
    expect_resumes(trained, first, resumed, second, 1e-12);
  }
  const auto first = make_parameters(torch::kFloat64);
  const auto second = make_parameters(torch::kFloat64);
  FusedSgd trained(first, FusedSgdOptions(0.1).momentum(0.9));
  SGD resumed(second, 0.5);
  expect_resumes(trained, first, resumed, second, 1e-12);
}

TEST(FusedSgdTest, ASkippedStepLeavesEverythingBitEqual) {
  const auto state_of = [](FusedSgd& optimizer,
                           const torch::Tensor& parameter) -> std::vector<torch::Tensor> {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) return {};
    const auto& buffer = static_cast<const FusedSgdParamState&>(*found->second).momentum_buffer();
    return buffer.defined() ? std::vector<torch::Tensor>{buffer} : std::vector<torch::Tensor>();
  };
  // The first step takes the whole gradient into the buffer, later ones only what dampening leaves of it, so
  // a skipped step must not count as the first.
  for (const double dampening : {0.0, 0.3})
    expect_skips<FusedSgd>(FusedSgdOptions(0.1).momentum(0.9).dampening(dampening).weight_decay(0.1),
                           state_of);
  expect_skips<FusedSgd>(FusedSgdOptions(0.1).momentum(0.9).nesterov(true), state_of);
}

TEST(FusedSgdTest, ASkippedStepWithoutMomentumLeavesTheParameters) {
  const auto parameter = torch::ones({3}, torch::requires_grad());
  FusedSgd optimizer({parameter}, 0.5);
  parameter.mutable_grad() = torch::ones({3});
  optimizer.step_unless(torch::ones({}));
  EXPECT_TRUE(torch::equal(parameter, torch::ones({3})));
  optimizer.step_unless(torch::zeros({}));
  EXPECT_TRUE(torch::equal(parameter, torch::full({3}, 0.5)));
}

TEST(FusedSgdTest, MovesIntoAVector) {
  const auto weight = torch::ones({2}, torch::requires_grad());
  std::vector<FusedSgd> optimizers;
  for (int count = 0; count < 3; ++count) optimizers.push_back(FusedSgd({weight}, 0.25));
  weight.mutable_grad() = torch::ones({2});
  for (auto& optimizer : optimizers) optimizer.step();
  EXPECT_TRUE(torch::allclose(weight, torch::full({2}, 0.25)));
}

TEST(FusedSgdTest, RefusesOptionsAndSparseGradientsByName) {
  const auto message = [](const FusedSgdOptions& options) -> std::string {
    try {
      FusedSgd optimizer({torch::ones({2})}, options);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message(FusedSgdOptions(-1)), HasSubstr("[FusedSgd] expected lr to be at least 0, but got -1"));
  EXPECT_THAT(message(FusedSgdOptions().momentum(-1)), HasSubstr("expected momentum to be at least 0"));
  EXPECT_THAT(message(FusedSgdOptions().weight_decay(-1)),
              HasSubstr("expected weight_decay to be at least 0"));
  EXPECT_THAT(message(FusedSgdOptions().nesterov(true)),
              HasSubstr("expected momentum to be positive with nesterov"));
  EXPECT_THAT(message(FusedSgdOptions().momentum(0.9).dampening(0.1).nesterov(true)),
              HasSubstr("expected dampening to be 0 with nesterov, but got 0.1"));
  const auto weight = torch::ones({2, 2}, torch::requires_grad());
  FusedSgd optimizer({weight}, 0.1);
  weight.mutable_grad() = torch::ones({2, 2}).to_sparse();
  EXPECT_THROW(optimizer.step(), std::invalid_argument);
}

TEST(FusedSgdTest, ARefusedFirstStepLeavesNoMomentumBehind) {
  const auto first = make_parameters(torch::kFloat64);
  const auto second = make_parameters(torch::kFloat64);
  auto refused = second;
  refused.push_back(torch::ones({2, 2}, torch::requires_grad()));
  SGD expected(first, SGDOptions(0.1).momentum(0.9));
  FusedSgd optimizer(refused, FusedSgdOptions(0.1).momentum(0.9));
  for (const auto& parameter : second) parameter.mutable_grad() = torch::full_like(parameter, 7);
  refused.back().mutable_grad() = torch::ones({2, 2}).to_sparse();
  EXPECT_THROW(optimizer.step(), std::invalid_argument);
  refused.back().mutable_grad().reset();
  for (const auto* parameters : {&first, &second}) {
    for (const auto& parameter : *parameters) parameter.mutable_grad() = torch::ones_like(parameter);
  }
  for (int step = 0; step < 2; ++step) {
    expected.step();
    optimizer.step();
  }
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(torch::allclose(first[i], second[i]));
}

}  // namespace
}  // namespace lockstep
