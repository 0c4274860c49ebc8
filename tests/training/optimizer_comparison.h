#pragma once

#include <gtest/gtest.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <vector>

// Runs a fused optimizer beside torch::optim's on equal parameters and gradients.

namespace lockstep {

/// Parameters of several shapes, one of them channels_last, equal in every call.
inline std::vector<torch::Tensor> make_parameters(torch::Dtype dtype) {
  std::vector<torch::Tensor> parameters;
  auto generator = at::detail::createCPUGenerator(1);
  const auto add = [&](torch::IntArrayRef shape) {
    parameters.push_back(torch::randn(shape, generator, torch::kFloat64).to(dtype));
  };
  add({7});
  add({5, 4});
  add({});
  add({3, 2, 3, 3});
  parameters.back() = parameters.back().contiguous(torch::MemoryFormat::ChannelsLast);
  add({64, 33});
  for (auto& parameter : parameters) parameter.set_requires_grad(true);
  return parameters;
}

/// Gives every parameter the gradient of `step`; parameter 1 has none in every third step, parameter 2 never
/// has one.
inline void set_gradients(const std::vector<torch::Tensor>& parameters, int step) {
  auto generator = at::detail::createCPUGenerator(100 + step);
  for (size_t index = 0; index < parameters.size(); ++index) {
    const auto& parameter = parameters[index];
    const auto gradient =
        torch::randn(parameter.sizes(), generator, torch::kFloat64).to(parameter.scalar_type());
    const bool missing = (index == 1 && step % 3 == 0) || index == 2;
    // Gradients come contiguous here, channels_last parameters included.
    parameter.mutable_grad() = missing ? torch::Tensor() : gradient;
  }
}

inline double largest_difference(const std::vector<torch::Tensor>& left,
                                 const std::vector<torch::Tensor>& right) {
  double largest = 0;
  for (size_t index = 0; index < left.size(); ++index) {
    const auto difference = (left[index] - right[index]).abs().max().item<double>();
    largest = std::max(largest, difference);
  }
  return largest;
}

constexpr int kComparedSteps = 20;

/// The largest difference that float64 and float32 may show after 20 steps.
inline double tolerance(torch::Dtype dtype) {
  return dtype == torch::kFloat64 ? 1e-12 : 1e-6;
}

/// Steps both optimizers 20 times, each with a learning rate schedule of its own if asked for.
template <typename Fused, typename Plain>
void expect_equal_steps(Fused& fused, const std::vector<torch::Tensor>& fused_parameters, Plain& plain,
                        const std::vector<torch::Tensor>& plain_parameters, bool scheduled = false) {
  ASSERT_EQ(largest_difference(fused_parameters, plain_parameters), 0);
  const auto start = fused_parameters[0].detach().clone();
  torch::optim::StepLR fused_schedule(fused, 5, 0.5);
  torch::optim::StepLR plain_schedule(plain, 5, 0.5);
  for (int step = 0; step < kComparedSteps; ++step) {
    set_gradients(fused_parameters, step);
    set_gradients(plain_parameters, step);
    fused.step();
    plain.step();
    if (scheduled) {
      fused_schedule.step();
      plain_schedule.step();
    }
  }
  EXPECT_FALSE(torch::equal(fused_parameters[0], start));
  EXPECT_EQ(fused.param_groups()[0].options().get_lr(), plain.param_groups()[0].options().get_lr());
  EXPECT_LE(largest_difference(fused_parameters, plain_parameters),
            tolerance(plain_parameters[0].scalar_type()));
}

/// The same over both dtypes, with one group of all parameters.
template <typename Fused, typename Plain, typename FusedOptions, typename PlainOptions>
void expect_equal(const FusedOptions& fused_options, const PlainOptions& plain_options,
                  bool scheduled = false) {
  for (const auto dtype : {torch::kFloat64, torch::kFloat32}) {
    SCOPED_TRACE(torch::toString(dtype));
    const auto fused_parameters = make_parameters(dtype);
    const auto plain_parameters = make_parameters(dtype);
    Fused fused(fused_parameters, fused_options);
    Plain plain(plain_parameters, plain_options);
    expect_equal_steps(fused, fused_parameters, plain, plain_parameters, scheduled);
  }
}

/// The parameters in two groups: the first two with `options`, the others with the optimizer's defaults.
template <typename Options>
std::vector<torch::optim::OptimizerParamGroup> two_groups(const std::vector<torch::Tensor>& parameters,
                                                          const Options& options) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>(parameters.begin(), parameters.begin() + 2),
                      std::make_unique<Options>(options));
  groups.emplace_back(std::vector<torch::Tensor>(parameters.begin() + 2, parameters.end()));
  return groups;
}

/// Steps `trained` five times, hands its state and parameters to `resumed`, made anew, and expects that both
/// go on alike.
template <typename Trained, typename Resumed>
void expect_resumes(Trained& trained, const std::vector<torch::Tensor>& trained_parameters, Resumed& resumed,
                    const std::vector<torch::Tensor>& resumed_parameters, double tolerated) {
  for (int step = 0; step < 5; ++step) {
    set_gradients(trained_parameters, step);
    trained.step();
  }
  std::stringstream stream;
  torch::save(trained, stream);
  torch::load(resumed, stream);
  {
    torch::NoGradGuard no_grad;
    for (size_t index = 0; index < trained_parameters.size(); ++index) {
      resumed_parameters[index].copy_(trained_parameters[index]);
    }
  }
  for (int step = 5; step < 10; ++step) {
    set_gradients(trained_parameters, step);
    set_gradients(resumed_parameters, step);
    trained.step();
    resumed.step();
  }
  EXPECT_LE(largest_difference(trained_parameters, resumed_parameters), tolerated);
}

}  // namespace lockstep
