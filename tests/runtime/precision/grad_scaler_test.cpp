#include "lockstep/runtime/precision/grad_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/precision/skippable_step.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using Sgd = torch::optim::SGD;

constexpr float kInf = std::numeric_limits<float>::infinity();

template <typename Fn>
std::string refusal(const Fn& fn) {
  try {
    fn();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing thrown";
}

torch::Tensor parameter_of(at::ScalarType dtype = torch::kFloat) {
  return torch::tensor({1.0, -2.0, 3.0}, dtype).requires_grad_();
}

Sgd make_sgd(const torch::Tensor& parameter) {
  return Sgd({parameter}, torch::optim::SGDOptions(0.1).momentum(0.9));
}

/// One step on sum(x * parameter).
void step(GradScaler& scaler, Sgd& optimizer, const torch::Tensor& parameter, const torch::Tensor& x) {
  optimizer.zero_grad();
  scaler.scale((x * parameter).sum()).backward();
  scaler.step(optimizer);
  scaler.update();
}

TEST(GradScaler, ScalesTheLossAndItsGradients) {
  const GradScaler scaler(torch::kCPU, {.init_scale = 1024});
  const auto parameter = parameter_of();
  const auto loss = scaler.scale(parameter.sum());
  EXPECT_EQ(loss.item<float>(), 2 * 1024);
  loss.backward();
  EXPECT_TRUE(torch::equal(parameter.grad(), torch::full({3}, 1024.0F)));
}

TEST(GradScaler, StepsAsWithoutScaleByPowersOfTwo) {
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    auto scaled = parameter_of(dtype), plain = parameter_of(dtype);
    auto scaled_optimizer = make_sgd(scaled), plain_optimizer = make_sgd(plain);
    GradScaler scaler(torch::kCPU, {.growth_interval = 2});
    torch::manual_seed(5);
    for (int i = 0; i < 6; ++i) {
      const auto x = torch::randn({3}, dtype);
      step(scaler, scaled_optimizer, scaled, x);
      plain_optimizer.zero_grad();
      (x * plain).sum().backward();
      plain_optimizer.step();
      EXPECT_TRUE(torch::equal(scaled, plain)) << "step " << i;
      EXPECT_TRUE(torch::equal(scaled.grad(), plain.grad())) << "step " << i;
    }
    EXPECT_EQ(scaler.get_scale(), 65536.0 * 8);
  }
}

TEST(GradScaler, SkipsAStepWithAnInfinityOrANan) {
  for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()}) {
    auto parameter = parameter_of();
    auto optimizer = make_sgd(parameter);
    GradScaler scaler(torch::kCPU);
    step(scaler, optimizer, parameter, torch::ones({3}));
    const auto before = parameter.detach().clone();
    step(scaler, optimizer, parameter, torch::tensor({1.0F, bad, 1.0F}));
    EXPECT_TRUE(torch::equal(parameter, before));
    EXPECT_EQ(scaler.get_scale(), 32768);
    step(scaler, optimizer, parameter, torch::ones({3}));
    EXPECT_TRUE(torch::allclose(parameter, before - 0.1 * 1.9));
  }
}

// The loss is within float16's range: if only the scale makes it overflow, a lower scale must let it through.
TEST(GradScaler, BacksOffUntilNothingOverflows) {
  auto parameter = torch::ones({1}).requires_grad_();
  Sgd optimizer({parameter}, 1.0);
  GradScaler scaler(torch::kCPU);
  int steps = 0;
  while (parameter.item<float>() == 1) {
    optimizer.zero_grad();
    scaler.scale((parameter.to(torch::kHalf) * 8).to(torch::kFloat).sum()).backward();
    scaler.step(optimizer);
    scaler.update();
    ASSERT_LT(++steps, 20);
  }
  // 8 times the scale must stay below 65520: at 4096, after four halvings of 65536.
  EXPECT_EQ(steps, 5);
  EXPECT_EQ(scaler.get_scale(), 4096);
  EXPECT_EQ(parameter.item<float>(), -7);
}

TEST(GradScaler, FollowsTheRuleOfTorchAmp) {
  constexpr double kGrowth = 3, kBackoff = 0.25;
  constexpr int64_t kInterval = 3;
  auto parameter = parameter_of();
  Sgd optimizer({parameter}, 1e-3);
  GradScaler scaler(torch::kCPU, {.init_scale = 100,
                                  .growth_factor = kGrowth,
                                  .backoff_factor = kBackoff,
                                  .growth_interval = kInterval});
  float scale = 100;
  int64_t since = 0;
  const std::string overflows = "..x...xx.......x..x....";
  for (size_t i = 0; i < overflows.size(); ++i) {
    const bool overflow = overflows[i] == 'x';
    step(scaler, optimizer, parameter, overflow ? torch::full({3}, kInf) : torch::ones({3}));
    if (overflow) {
      scale = static_cast<float>(scale * kBackoff);
      since = 0;
    } else if (++since == kInterval) {
      scale = static_cast<float>(scale * kGrowth);
      since = 0;
    }
    const GradScalerState state = scaler.state();
    EXPECT_EQ(state.scale, scale) << "step " << i;
    EXPECT_EQ(scaler.get_scale(), scale) << "step " << i;
    EXPECT_EQ(state.growth_tracker, since) << "step " << i;
  }
}

TEST(GradScaler, NeverGrowsToInfinity) {
  auto parameter = parameter_of();
  Sgd optimizer({parameter}, 1e-3);
  const double most = std::ldexp(1.0, 127);
  GradScaler scaler(torch::kCPU, {.init_scale = most, .growth_interval = 1});
  step(scaler, optimizer, parameter, torch::zeros({3}));
  EXPECT_EQ(scaler.get_scale(), most);
}

TEST(GradScaler, OneUpdateCountsTheStepsOfTwoOptimizersAsOne) {
  for (const size_t overflowing : {0U, 1U, 2U}) {  // 2: neither
    std::vector<torch::Tensor> parameters{parameter_of(), parameter_of()};
    std::array<Sgd, 2> optimizers{make_sgd(parameters[0]), make_sgd(parameters[1])};
    GradScaler scaler(torch::kCPU, {.growth_interval = 2});
    for (int i = 0; i < 2; ++i) {
      for (size_t which = 0; which < 2; ++which) {
        optimizers[which].zero_grad();
        const float factor = which == overflowing ? kInf : 1.0F;
        scaler.scale((parameters[which] * factor).sum()).backward();
      }
      for (auto& optimizer : optimizers) scaler.step(optimizer);
      scaler.update();
    }
    EXPECT_EQ(scaler.get_scale(), overflowing == 2 ? 65536.0 * 2 : 65536.0 / 4);
    for (size_t which = 0; which < 2; ++which)
      EXPECT_EQ(torch::equal(parameters[which], parameter_of()), which == overflowing);
  }
}

TEST(GradScaler, ForgetsTheOverflowOfTheStepBefore) {
  auto parameter = parameter_of();
  auto optimizer = make_sgd(parameter);
  GradScaler scaler(torch::kCPU, {.growth_interval = 1});
  step(scaler, optimizer, parameter, torch::full({3}, kInf));
  EXPECT_EQ(scaler.get_scale(), 32768);
  step(scaler, optimizer, parameter, torch::ones({3}));
  EXPECT_EQ(scaler.get_scale(), 65536);
}

TEST(GradScaler, GradientsUnscaledByTheCallerAreUnscaledOnce) {
  auto parameter = parameter_of();
  Sgd optimizer({parameter}, 1.0);
  GradScaler scaler(torch::kCPU);
  scaler.scale((parameter * 5).sum()).backward();
  scaler.unscale(optimizer);
  EXPECT_TRUE(torch::equal(parameter.grad(), torch::full({3}, 5.0F)));
  parameter.mutable_grad().clamp_(-2, 2);
  EXPECT_THAT(refusal([&] { scaler.unscale(optimizer); }), HasSubstr("at most once a step"));
  scaler.step(optimizer);
  EXPECT_TRUE(torch::equal(parameter, parameter_of() - 2));
  EXPECT_THAT(refusal([&] { scaler.step(optimizer); }), HasSubstr("call scaler.update() at the end"));
  EXPECT_THAT(refusal([&] { scaler.unscale(optimizer); }), HasSubstr("at most once a step"));
  scaler.update();
  EXPECT_THAT(refusal([&] { scaler.update(); }), HasSubstr("before update()"));
}

TEST(GradScaler, CallsTheChangeBetweenUnscalingAndStepping) {
  auto parameter = parameter_of();
  Sgd optimizer({parameter}, 1.0);
  GradScaler scaler(torch::kCPU);
  scaler.scale((parameter * 5).sum()).backward();
  scaler.step(optimizer, [&] {
    EXPECT_TRUE(torch::equal(parameter.grad(), torch::full({3}, 5.0F)));
    parameter.mutable_grad().fill_(1);
  });
  EXPECT_TRUE(torch::equal(parameter, parameter_of() - 1));
}

TEST(GradScaler, AStepThatThrewIsForgotten) {
  auto parameter = parameter_of();
  Sgd optimizer({parameter}, 1.0);
  GradScaler scaler(torch::kCPU);
  scaler.scale((parameter * 5).sum()).backward();
  EXPECT_THROW(scaler.step(optimizer, [] { throw std::domain_error("planted"); }), std::domain_error);
  optimizer.zero_grad();
  scaler.scale((parameter * 7).sum()).backward();
  scaler.step(optimizer);
  EXPECT_TRUE(torch::equal(parameter, parameter_of() - 7));
}

TEST(GradScaler, ALossMustGoBackwardBeforeTheScaleChanges) {
  auto parameter = parameter_of();
  Sgd optimizer({parameter}, 1.0);
  GradScaler scaler(torch::kCPU);
  const auto loss = scaler.scale(parameter.square().sum());
  parameter.mutable_grad() = torch::ones({3});
  scaler.step(optimizer);
  scaler.update();
  EXPECT_THROW(loss.backward(), std::exception);
}

TEST(GradScaler, DisabledItChangesNothing) {
  auto parameter = parameter_of();
  Sgd optimizer({parameter}, 1.0);
  GradScaler scaler(torch::kCPU, {.enabled = false});
  const auto loss = parameter.sum();
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  loss.backward();
  scaler.unscale(optimizer);
  int changes = 0;
  scaler.step(optimizer, [&] { ++changes; });
  scaler.step(optimizer);
  scaler.update();
  scaler.update();
  EXPECT_EQ(changes, 1);
  EXPECT_EQ(scaler.get_scale(), 1);
  EXPECT_TRUE(torch::equal(parameter, parameter_of() - 2));
}

TEST(GradScaler, UnscalesTheRowsOfASparseGradient) {
  auto parameter = torch::ones({3, 2}).requires_grad_();
  Sgd optimizer({parameter}, 1.0);
  GradScaler scaler(torch::kCPU, {.init_scale = 8});
  const auto sparse = [](float value) {
    return torch::sparse_coo_tensor(torch::tensor({{2, 0}}), torch::full({2, 2}, value), {3, 2});
  };
  parameter.mutable_grad() = sparse(16);
  scaler.unscale(optimizer);
  EXPECT_TRUE(torch::equal(parameter.grad().to_dense(), sparse(2).to_dense()));
  scaler.load_state(scaler.state());  // forgets the unscaling
  parameter.mutable_grad() = sparse(kInf);
  scaler.step(optimizer);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 4);
  EXPECT_TRUE(torch::equal(parameter, torch::ones({3, 2})));
}

TEST(GradScaler, RefusesGradientsInFloat16) {
  auto parameter = torch::ones({2, 3}, torch::kHalf).requires_grad_();
  Sgd optimizer({parameter}, 1.0);
  GradScaler scaler(torch::kCPU);
  parameter.mutable_grad() = torch::ones({2, 3}, torch::kHalf);
  EXPECT_THAT(refusal([&] { scaler.step(optimizer); }),
              HasSubstr("expected gradients of float32 parameters, but got one of float16, of shape [2, 3]"));
}

TEST(GradScaler, AnOptimizerWithoutGradientsStepsAndCounts) {
  auto parameter = parameter_of();
  Sgd optimizer({parameter}, 1.0);
  GradScaler scaler(torch::kCPU);
  scaler.step(optimizer);
  scaler.update();
  EXPECT_EQ(scaler.state().growth_tracker, 1);
}

TEST(GradScaler, GoesOnFromASavedState) {
  const auto run = [](GradScaler& scaler, int from, int to) {
    auto parameter = parameter_of();
    Sgd optimizer({parameter}, 1e-3);
    for (int i = from; i < to; ++i)
      step(scaler, optimizer, parameter, i == 1 ? torch::full({3}, kInf) : torch::ones({3}));
  };
  const GradScalerOptions options{.growth_interval = 3};
  GradScaler whole(torch::kCPU, options), first(torch::kCPU, options), second(torch::kCPU, options);
  run(whole, 0, 9);
  run(first, 0, 4);
  second.load_state(first.state());
  run(second, 4, 9);
  EXPECT_EQ(second.get_scale(), whole.get_scale());
  EXPECT_EQ(second.state().growth_tracker, whole.state().growth_tracker);
  EXPECT_THAT(refusal([&] { second.load_state({.scale = 0}); }), HasSubstr("expected scale to be positive"));
  EXPECT_THAT(refusal([&] { second.load_state({.scale = 1, .growth_tracker = -1}); }),
              HasSubstr("expected growth_tracker to be at least 0 and an int32, but got -1"));
}

TEST(GradScaler, RefusesOptionsOutOfRange) {
  const auto refused = [](const GradScalerOptions& options) {
    return refusal([&] { const GradScaler scaler(torch::kCPU, options); });
  };
  EXPECT_THAT(refused({.init_scale = 0}), HasSubstr("init_scale to be positive and finite"));
  EXPECT_THAT(refused({.init_scale = 1e39}), HasSubstr("init_scale to be positive and finite"));
  EXPECT_THAT(refused({.init_scale = NAN}), HasSubstr("init_scale"));
  EXPECT_EQ(refused({.growth_factor = 1}),
            "[GradScaler] expected growth_factor to be more than 1 and finite, but got 1");
  EXPECT_THAT(refused({.backoff_factor = 1}), HasSubstr("backoff_factor to be in (0, 1), but got 1"));
  EXPECT_THAT(refused({.backoff_factor = 0}), HasSubstr("backoff_factor"));
  EXPECT_THAT(refused({.growth_interval = 0}), HasSubstr("growth_interval to be at least 1"));
  EXPECT_EQ(refused({}), "nothing thrown");
}

/// Records what it is handed, and refuses plain step() calls.
class NotingOptimizer : public Sgd, public SkippableStep {
 public:
  using Sgd::Sgd;
  torch::Tensor step(LossClosure) override { throw std::domain_error("step() was called"); }
  void step_unless(const torch::Tensor& found_inf) override { handed.push_back(found_inf); }

  std::vector<torch::Tensor> handed;
};

TEST(GradScaler, LeavesTheDecisionToAnOptimizerThatMakesItItself) {
  auto parameter = parameter_of();
  NotingOptimizer optimizer({parameter}, 1.0);
  GradScaler scaler(torch::kCPU);
  for (const float value : {1.0F, kInf, 2.0F}) {
    parameter.mutable_grad() = torch::full({3}, value);
    scaler.step(optimizer);
    scaler.update();
  }
  ASSERT_EQ(optimizer.handed.size(), 3U);
  EXPECT_EQ(optimizer.handed[0].item<float>(), 0);
  EXPECT_EQ(optimizer.handed[1].item<float>(), 1);
  EXPECT_EQ(optimizer.handed[2].item<float>(), 0);
}

}  // namespace
}  // namespace lockstep
