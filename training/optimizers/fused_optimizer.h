#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/parameter_server/variables/optimizer_rule.h"
#include "lockstep/runtime/graphs/capturable_step.h"
#include "lockstep/runtime/graphs/fingerprint.h"
#include "lockstep/runtime/precision/skippable_step.h"
#include "lockstep/runtime/replicas/elementwise_step.h"
#include "lockstep/training/optimizers/step_rates.h"

namespace lockstep {

/// Base of FusedAdam, FusedAdamW, FusedSgd and FusedAdagrad, which run ATen's fused operators and whose steps
/// parameter servers can make. Not thread-safe.
///
/// Example:
///
///     std::unique_ptr<FusedOptimizer> optimizer = std::make_unique<FusedSgd>(model->parameters(), 0.1);
///     optimizer->step();
class FusedOptimizer : public torch::optim::Optimizer, public HasUpdateRule, public ElementwiseStep {
 public:
  /// Evaluates `closure`, if given, with gradients enabled, then updates all parameters that have a gradient.
  /// Returns the closure's loss, or an undefined tensor without a closure.
  torch::Tensor step(LossClosure closure = nullptr) override;

 protected:
  /// `name` is the class's name in error messages, and must outlive the optimizer.
  FusedOptimizer(const char* name, const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                 std::unique_ptr<torch::optim::OptimizerOptions> defaults);

  const char* name() const { return name_; }
  /// Steps all parameter groups with gradients disabled. `found_inf` is that of SkippableStep::step_unless(),
  /// or undefined for a step that is never skipped.
  virtual void step_groups(const torch::Tensor& found_inf);

 private:
  /// Steps one parameter group; see step_groups().
  virtual void step_group(size_t group, const torch::Tensor& found_inf) = 0;

  const char* name_;
};

/// Base of the fused optimizers whose steps can be skipped on the device and captured in a CUDA graph:
/// FusedAdam, FusedAdamW and FusedSgd. It keeps the learning rates that captured steps read.
///
/// Example:
///
///     FusedAdam adam(model->parameters(), 1e-3);
///     CapturableFusedOptimizer& optimizer = adam;
///     optimizer.step_unless(found_inf);  // a float32 scalar
class CapturableFusedOptimizer : public FusedOptimizer, public SkippableStep, public CapturableStep {
 public:
  void step_unless(const torch::Tensor& found_inf) override;
  void describe_step(Fingerprint& fingerprint) const override;
  void refresh_step() override;

 protected:
  CapturableFusedOptimizer(const char* name,
                           const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                           std::unique_ptr<torch::optim::OptimizerOptions> defaults);

  /// Calls `update(rate)` with the learning rate of `group` as the operators for `parameter` take it: a
  /// tensor on the parameter's device, or a double. See StepRates::are_tensors_for().
  template <typename Update>
  void with_rate(size_t group, const torch::Tensor& parameter, const Update& update) {
    const double rate = param_groups_[group].options().get_lr();
    if (StepRates::are_tensors_for(parameter)) {
      update(rates_.get(group, parameter.device(), rate));
    } else {
      update(rate);
    }
  }

 private:
  /// Adds the options of `group`, except the learning rate.
  virtual void describe_options(Fingerprint& fingerprint, size_t group) const = 0;
  /// Adds the tensors of one parameter's state.
  virtual void describe_state(Fingerprint& fingerprint,
                              const torch::optim::OptimizerParamState& state) const = 0;

  StepRates rates_;
};

}  // namespace lockstep
