#pragma once

#include <gtest/gtest.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <sstream>
#include <vector>

// Runs a fused optimizer next to torch::optim's on equal parameters and gradients.

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

/// Gives every parameter the gradient of `step`. Parameter 1 has none in every third step, parameter 2 never
/// has one.
inline void set_gradients(const std::vector<torch::Tensor>& parameters, int step) {
  auto generator = at::detail::createCPUGenerator(100 + step);
  for (size_t index = 0; index < parameters.size(); ++index) {
    const auto& parameter = parameters[index];
    const auto gradient =
        torch::randn(parameter.sizes(), generator, torch::kFloat64).to(parameter.scalar_type());
    const bool missing = (index == 1 && step % 3 == 0) || index == 2;
    // Gradients are contiguous here, even those of channels_last parameters.
    parameter.mutable_grad() = missing ? torch::Tensor() : gradient;
  }
}

inline double largest_distance(const std::vector<torch::Tensor>& left,
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

/// Steps both optimizers 20 times, each with its own learning rate schedule if asked for.
template <typename Fused, typename Plain>
void expect_equal_steps(Fused& fused, const std::vector<torch::Tensor>& fused_parameters, Plain& plain,
                        const std::vector<torch::Tensor>& plain_parameters, bool scheduled = false) {
  ASSERT_EQ(largest_distance(fused_parameters, plain_parameters), 0);
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
  EXPECT_LE(largest_distance(fused_parameters, plain_parameters),
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

/// Whether all values are the same, bit by bit.
inline bool bit_equal(const torch::Tensor& left, const torch::Tensor& right) {
  if (left.defined() != right.defined()) return false;
  if (!left.defined()) return true;
  const auto a = left.contiguous(), b = right.contiguous();
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

/// Steps one optimizer through steps with and without an infinity, the first two with one, and another only
/// through those without. `state_tensors(optimizer, parameter)` and the parameters must be bit-equal, in
/// other layouts too.
template <typename Fused, typename Options, typename StateTensors>
void expect_skips(const Options& options, const StateTensors& state_tensors) {
  for (const auto dtype : {torch::kFloat64, torch::kFloat32}) {
    SCOPED_TRACE(torch::toString(dtype));
    const auto skipping_parameters = make_parameters(dtype);
    const auto plain_parameters = make_parameters(dtype);
    Fused skipping(skipping_parameters, options);
    Fused plain(plain_parameters, options);
    const auto expect_same = [&](int step) {
      for (size_t i = 0; i < plain_parameters.size(); ++i) {
        EXPECT_TRUE(bit_equal(skipping_parameters[i], plain_parameters[i])) << "step " << step;
        const auto given = state_tensors(skipping, skipping_parameters[i]);
        const auto expected = state_tensors(plain, plain_parameters[i]);
        // Before its first step, one optimizer may have zeros and the other nothing yet.
        if (given.empty() || expected.empty()) continue;
        ASSERT_EQ(given.size(), expected.size());
        for (size_t k = 0; k < given.size(); ++k)
          EXPECT_TRUE(bit_equal(given[k], expected[k])) << "state " << k << " after step " << step;
      }
    };
    for (int step = 0; step < kComparedSteps; ++step) {
      const bool skips = step < 2 || step % 5 == 4;
      set_gradients(skipping_parameters, step);
      if (skips) {
        skipping_parameters[0].mutable_grad().fill_(std::numeric_limits<double>::infinity());
      } else {
        set_gradients(plain_parameters, step);
        plain.step();
      }
      skipping.step_unless(torch::full({}, skips ? 1.0F : 0.0F));
      expect_same(step);
    }
    EXPECT_FALSE(torch::equal(plain_parameters[0], make_parameters(dtype)[0]));
    EXPECT_FALSE(state_tensors(plain, plain_parameters[0]).empty());
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

/// Steps `trained` five times, hands its state and parameters to the new `resumed`, and expects both to
/// continue equally.
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
  EXPECT_LE(largest_distance(trained_parameters, resumed_parameters), tolerated);
}

}  // namespace lockstep
