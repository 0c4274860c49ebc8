#pragma once

#include <torch/arg.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/variables/update_rule.h"
#include "lockstep/runtime/graphs/fingerprint.h"
#include "lockstep/training/optimizers/fused_optimizer.h"

namespace lockstep {

/// The options of torch::optim::AdamOptions, and `maximize`.
struct FusedAdamOptions : public torch::optim::OptimizerCloneableOptions<FusedAdamOptions> {
  FusedAdamOptions(double lr = 1e-3)
      : lr_(lr) {}  // NOLINT: implicit, so that `FusedAdam(parameters, 1e-3)` compiles
  using Betas = std::tuple<double, double>;
  TORCH_ARG(double, lr);
  TORCH_ARG(Betas, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;  ///< The step adds this times the parameter to the gradient.
  TORCH_ARG(bool, amsgrad) = false;
  TORCH_ARG(bool, maximize) = false;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(double value) override { lr(value); }
};

/// The options of torch::optim::AdamWOptions, and `maximize`.
struct FusedAdamWOptions : public torch::optim::OptimizerCloneableOptions<FusedAdamWOptions> {
  FusedAdamWOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT: implicit, as above
  using Betas = std::tuple<double, double>;
  TORCH_ARG(double, lr);
  TORCH_ARG(Betas, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 1e-2;  ///< The step first scales the parameter by 1 - lr * this.
  TORCH_ARG(bool, amsgrad) = false;
  TORCH_ARG(bool, maximize) = false;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(double value) override { lr(value); }
};

/// The state that FusedAdam and FusedAdamW keep for one parameter.
struct FusedAdamParamState : public torch::optim::OptimizerCloneableParamState<FusedAdamParamState> {
  /// Number of steps done: a float32 scalar on the parameter's device. Steps never read it on the host.
  TORCH_ARG(torch::Tensor, step);
  TORCH_ARG(torch::Tensor, exp_avg);
  TORCH_ARG(torch::Tensor, exp_avg_sq);
  TORCH_ARG(torch::Tensor, max_exp_avg_sq);  ///< Undefined without `amsgrad`.

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

/// Base of FusedAdam and FusedAdamW, which differ in their weight decay only.
///
/// Example:
///
///     std::unique_ptr<FusedAdamBase> optimizer = std::make_unique<FusedAdamW>(model->parameters(), 1e-3);
class FusedAdamBase : public CapturableFusedOptimizer {
 protected:
  FusedAdamBase(const char* name, const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                std::unique_ptr<torch::optim::OptimizerOptions> defaults);

 private:
  void step_group(size_t group, const torch::Tensor& found_inf) override;
  void describe_options(Fingerprint& fingerprint, size_t group) const override;
  void describe_state(Fingerprint& fingerprint,
                      const torch::optim::OptimizerParamState& state) const override;
};

/// Adam (Kingma and Ba, 2014) with one ATen call for all parameters of a device and dtype. Results equal
/// those of torch::optim::Adam within rounding, in a fraction of the time if there are many small tensors.
/// Archives of the two are interchangeable.
///
/// step() and step_unless() do not synchronise with the device. On a GPU the learning rate is a float32
/// tensor, which a captured step reads, and so is rounded to float32 (except for float64 parameters).
/// Parameters without a gradient are skipped, and their steps are not counted. A step throws
/// std::invalid_argument naming the parameter if the parameter or its gradient is not dense.
///
/// Example:
///
///     FusedAdam optimizer(model->parameters(), FusedAdamOptions(1e-3).betas({0.9, 0.98}));
///     optimizer.zero_grad();
///     loss.backward();
///     optimizer.step();
class FusedAdam : public FusedAdamBase {
 public:
  /// Groups without options of their own take `defaults`. Throws std::invalid_argument if an option is out of
  /// range.
  explicit FusedAdam(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                     const FusedAdamOptions& defaults = {});
  explicit FusedAdam(std::vector<torch::Tensor> parameters, const FusedAdamOptions& defaults = {});

  UpdateRule update_rule(size_t group) const override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
};

/// FusedAdam with decoupled weight decay (Loshchilov and Hutter, 2017). It compares to torch::optim::AdamW as
/// FusedAdam does to torch::optim::Adam.
///
/// Example:
///
///     FusedAdamW optimizer(model->parameters(), FusedAdamWOptions(1e-3).weight_decay(0.1));
class FusedAdamW : public FusedAdamBase {
 public:
  /// Groups without options of their own take `defaults`. Throws std::invalid_argument if an option is out of
  /// range.
  explicit FusedAdamW(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                      const FusedAdamWOptions& defaults = {});
  explicit FusedAdamW(std::vector<torch::Tensor> parameters, const FusedAdamWOptions& defaults = {});

  UpdateRule update_rule(size_t group) const override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
};

}  // namespace lockstep
