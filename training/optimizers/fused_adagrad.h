#pragma once

#include <torch/arg.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/variables/update_rule.h"
#include "lockstep/training/optimizers/fused_optimizer.h"

namespace lockstep {

/// The options of torch::optim::AdagradOptions, and `maximize`.
struct FusedAdagradOptions : public torch::optim::OptimizerCloneableOptions<FusedAdagradOptions> {
  FusedAdagradOptions(double lr = 1e-2)
      : lr_(lr) {}  // NOLINT: implicit, so that `FusedAdagrad(parameters, 0.01)` compiles
  TORCH_ARG(double, lr);
  TORCH_ARG(double, lr_decay) = 0;
  TORCH_ARG(double, weight_decay) = 0;  ///< The step adds this times the parameter to the gradient.
  TORCH_ARG(double, initial_accumulator_value) = 0;
  TORCH_ARG(double, eps) = 1e-10;
  TORCH_ARG(bool, maximize) = false;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(double value) override { lr(value); }
};

/// Adagrad (Duchi, Hazan and Singer, 2011) for networks and for embedding tables. Results equal those of
/// torch::optim::Adagrad within rounding, and archives of the two are interchangeable. A sparse gradient
/// steps only the rows that it has. A parameter's state takes memory only once the parameter has had a
/// gradient.
///
/// Parameters without a gradient are skipped, and their steps are not counted. A step throws
/// std::invalid_argument if a parameter is not dense, if a gradient is sparse in more than its rows, and if a
/// gradient is sparse while `weight_decay` is not 0, since that would change all rows.
///
/// Example:
///
///     FusedAdagrad optimizer(model->parameters(), FusedAdagradOptions(0.01).initial_accumulator_value(0.1));
class FusedAdagrad : public FusedOptimizer {
 public:
  /// Groups without options of their own take `defaults`. Throws std::invalid_argument if an option is out of
  /// range.
  explicit FusedAdagrad(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                        const FusedAdagradOptions& defaults = {});
  explicit FusedAdagrad(std::vector<torch::Tensor> parameters, const FusedAdagradOptions& defaults = {});

  UpdateRule update_rule(size_t group) const override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void step_group(size_t group, const torch::Tensor& found_inf) override;
};

}  // namespace lockstep
