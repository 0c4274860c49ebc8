#pragma once

#include <torch/arg.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/variables/update_rule.h"
#include "lockstep/runtime/graphs/fingerprint.h"
#include "lockstep/training/optimizers/fused_optimizer.h"

namespace lockstep {

/// The options of torch::optim::SGDOptions, and `maximize`.
struct FusedSgdOptions : public torch::optim::OptimizerCloneableOptions<FusedSgdOptions> {
  FusedSgdOptions(double lr = 1e-3)
      : lr_(lr) {}  // NOLINT: implicit, so that `FusedSgd(parameters, 0.1)` compiles
  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0;
  TORCH_ARG(double, dampening) = 0;
  TORCH_ARG(double, weight_decay) = 0;  ///< The step adds this times the parameter to the gradient.
  TORCH_ARG(bool, nesterov) = false;
  TORCH_ARG(bool, maximize) = false;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(double value) override { lr(value); }
};

/// The state that FusedSgd keeps for one parameter. Without momentum there is none.
struct FusedSgdParamState : public torch::optim::OptimizerCloneableParamState<FusedSgdParamState> {
  TORCH_ARG(torch::Tensor, momentum_buffer);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

/// Stochastic gradient descent with momentum, with one ATen call for all parameters of a device and dtype.
/// Results equal those of torch::optim::SGD within rounding, in a fraction of the time if there are many
/// small tensors. Archives of the two are interchangeable.
///
/// step() does not synchronise with the device; step_unless() does if a parameter has no momentum buffer yet.
/// On a GPU the learning rate is a float32 tensor, which a captured step reads, and so is rounded to float32
/// (except for float64 parameters). Parameters without a gradient are skipped. A step throws
/// std::invalid_argument naming the parameter if the parameter or its gradient is not dense.
///
/// Example:
///
///     FusedSgd optimizer(model->parameters(), FusedSgdOptions(0.1).momentum(0.9));
///     optimizer.zero_grad();
///     loss.backward();
///     optimizer.step();
class FusedSgd : public CapturableFusedOptimizer {
 public:
  /// Groups without options of their own take `defaults`. Throws std::invalid_argument if an option is out of
  /// range.
  explicit FusedSgd(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                    const FusedSgdOptions& defaults = {});
  explicit FusedSgd(std::vector<torch::Tensor> parameters, const FusedSgdOptions& defaults = {});

  void describe_step(Fingerprint& fingerprint) const override;
  UpdateRule update_rule(size_t group) const override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void step_groups(const torch::Tensor& found_inf) override;
  void step_group(size_t group, const torch::Tensor& found_inf) override;
  void describe_options(Fingerprint& fingerprint, size_t group) const override;
  void describe_state(Fingerprint& fingerprint,
                      const torch::optim::OptimizerParamState& state) const override;

  // Whether the last step was skipped for a parameter without a momentum buffer.
  bool is_first_step_due_ = false;
};

}  // namespace lockstep
