#pragma once

#include <torch/arg.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/variables/optimizer_rule.h"
#include "lockstep/runtime/graphs/capturable_step.h"
#include "lockstep/runtime/precision/skippable_step.h"
#include "lockstep/training/optimizers/step_rates.h"

namespace lockstep {

/// As torch::optim::SGDOptions, and `maximize`.
struct FusedSgdOptions : public torch::optim::OptimizerCloneableOptions<FusedSgdOptions> {
  FusedSgdOptions(double lr = 1e-3)
      : lr_(lr) {}  // NOLINT: a learning rate is enough, `FusedSgd(parameters, 0.1)`
  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0;
  TORCH_ARG(double, dampening) = 0;
  TORCH_ARG(double, weight_decay) = 0;  ///< added to the gradient, times the parameter
  TORCH_ARG(bool, nesterov) = false;
  TORCH_ARG(bool, maximize) = false;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(double value) override { lr(value); }
};

/// What FusedSgd remembers of one parameter, with momentum only.
struct FusedSgdParamState : public torch::optim::OptimizerCloneableParamState<FusedSgdParamState> {
  TORCH_ARG(torch::Tensor, momentum_buffer);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

/// Stochastic gradient descent with momentum, with one ATen call for all parameters of a device and dtype:
/// torch::optim::SGD's results within rounding, in a fraction of its time on many small tensors. Archives of
/// the two can be exchanged.
///
/// step() does not synchronise with the device; step_unless() does for parameters that have no momentum
/// buffer yet. On a GPU the learning rate of parameters that are not float64 is rounded to float32: it is a
/// tensor there, which a captured step reads. Parameters without a gradient are skipped. Throws
/// std::invalid_argument naming the parameter for sparse gradients and parameters that are not dense.
class FusedSgd : public torch::optim::Optimizer,
                 public SkippableStep,
                 public CapturableStep,
                 public HasUpdateRule {
 public:
  /// Throws std::invalid_argument for options out of range. Groups without options of their own take
  /// `defaults`.
  explicit FusedSgd(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                    const FusedSgdOptions& defaults = {});
  explicit FusedSgd(std::vector<torch::Tensor> parameters, const FusedSgdOptions& defaults = {});

  torch::Tensor step(LossClosure closure = nullptr) override;
  void step_unless(const torch::Tensor& found_inf) override;
  void describe_step(Fingerprint& fingerprint) const override;
  void refresh_step() override;
  UpdateRule update_rule(size_t group) const override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  StepRates rates_;
  bool is_first_step_due_ = false;  // the last one was skipped where there is no momentum buffer yet
};

}  // namespace lockstep
