#pragma once

#include <torch/arg.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/variables/optimizer_rule.h"
#include "lockstep/runtime/graphs/capturable_step.h"
#include "lockstep/runtime/precision/skippable_step.h"
#include "lockstep/training/optimizers/step_rates.h"

namespace lockstep {

/// As torch::optim::AdamOptions, and `maximize`.
struct FusedAdamOptions : public torch::optim::OptimizerCloneableOptions<FusedAdamOptions> {
  FusedAdamOptions(double lr = 1e-3)
      : lr_(lr) {}  // NOLINT: a learning rate is enough, `FusedAdam(parameters, 1e-3)`
  using Betas = std::tuple<double, double>;
  TORCH_ARG(double, lr);
  TORCH_ARG(Betas, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;  ///< added to the gradient, times the parameter
  TORCH_ARG(bool, amsgrad) = false;
  TORCH_ARG(bool, maximize) = false;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(double value) override { lr(value); }
};

/// As torch::optim::AdamWOptions, and `maximize`.
struct FusedAdamWOptions : public torch::optim::OptimizerCloneableOptions<FusedAdamWOptions> {
  FusedAdamWOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT: as above
  using Betas = std::tuple<double, double>;
  TORCH_ARG(double, lr);
  TORCH_ARG(Betas, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 1e-2;  ///< a step shrinks the parameter by lr times this
  TORCH_ARG(bool, amsgrad) = false;
  TORCH_ARG(bool, maximize) = false;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(double value) override { lr(value); }
};

/// What Adam and AdamW remember of one parameter.
struct FusedAdamParamState : public torch::optim::OptimizerCloneableParamState<FusedAdamParamState> {
  TORCH_ARG(torch::Tensor,
            step);  ///< steps done: a float32 scalar on the parameter's device, never read on the host
  TORCH_ARG(torch::Tensor, exp_avg);
  TORCH_ARG(torch::Tensor, exp_avg_sq);
  TORCH_ARG(torch::Tensor, max_exp_avg_sq);  ///< with amsgrad only

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

/// Adam (Kingma and Ba, 2014) with one ATen call for all parameters of a device and dtype:
/// torch::optim::Adam's results within rounding, in a fraction of its time on many small tensors. Archives of
/// the two can be exchanged.
///
/// step() and step_unless() do not synchronise with the device. On a GPU the learning rate of parameters that
/// are not float64 is rounded to float32: it is a tensor there, which a captured step reads. Parameters
/// without a gradient are skipped and count no step. Throws std::invalid_argument naming the parameter for
/// sparse gradients and parameters that are not dense.
class FusedAdam : public torch::optim::Optimizer,
                  public SkippableStep,
                  public CapturableStep,
                  public HasUpdateRule {
 public:
  /// Throws std::invalid_argument for options out of range. Groups without options of their own take
  /// `defaults`.
  explicit FusedAdam(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                     const FusedAdamOptions& defaults = {});
  explicit FusedAdam(std::vector<torch::Tensor> parameters, const FusedAdamOptions& defaults = {});

  torch::Tensor step(LossClosure closure = nullptr) override;
  void step_unless(const torch::Tensor& found_inf) override;
  void describe_step(Fingerprint& fingerprint) const override;
  void refresh_step() override;
  UpdateRule update_rule(size_t group) const override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  StepRates rates_;
};

/// FusedAdam with decoupled weight decay (Loshchilov and Hutter, 2017), to torch::optim::AdamW what that is
/// to Adam.
class FusedAdamW : public torch::optim::Optimizer,
                   public SkippableStep,
                   public CapturableStep,
                   public HasUpdateRule {
 public:
  /// Throws std::invalid_argument for options out of range. Groups without options of their own take
  /// `defaults`.
  explicit FusedAdamW(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                      const FusedAdamWOptions& defaults = {});
  explicit FusedAdamW(std::vector<torch::Tensor> parameters, const FusedAdamWOptions& defaults = {});

  torch::Tensor step(LossClosure closure = nullptr) override;
  void step_unless(const torch::Tensor& found_inf) override;
  void describe_step(Fingerprint& fingerprint) const override;
  void refresh_step() override;
  UpdateRule update_rule(size_t group) const override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  StepRates rates_;
};

}  // namespace lockstep
