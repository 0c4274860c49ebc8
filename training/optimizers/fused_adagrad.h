#pragma once

#include <torch/arg.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/variables/optimizer_rule.h"

namespace lockstep {

/// As torch::optim::AdagradOptions, and `maximize`.
struct FusedAdagradOptions : public torch::optim::OptimizerCloneableOptions<FusedAdagradOptions> {
  FusedAdagradOptions(double lr = 1e-2)
      : lr_(lr) {}  // NOLINT: a learning rate is enough, `FusedAdagrad(parameters, 0.01)`
  TORCH_ARG(double, lr);
  TORCH_ARG(double, lr_decay) = 0;
  TORCH_ARG(double, weight_decay) = 0;  ///< added to the gradient, times the parameter
  TORCH_ARG(double, initial_accumulator_value) = 0;
  TORCH_ARG(double, eps) = 1e-10;
  TORCH_ARG(bool, maximize) = false;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(double value) override { lr(value); }
};

/// Adagrad (Duchi, Hazan and Singer, 2011), torch::optim::Adagrad's results within rounding, for networks and
/// for embedding tables: of a sparse gradient it steps the rows that it has, and touches no others. What it
/// remembers of a parameter takes memory only once that has a gradient. Archives of the two can be exchanged.
///
/// Parameters without a gradient are skipped and count no step. Throws std::invalid_argument for parameters
/// that are not dense, for gradients that are sparse in more than their rows, and for sparse ones with a
/// weight decay, which would change all rows.
class FusedAdagrad : public torch::optim::Optimizer, public HasUpdateRule {
 public:
  /// Throws std::invalid_argument for options out of range. Groups without options of their own take
  /// `defaults`.
  explicit FusedAdagrad(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                        const FusedAdagradOptions& defaults = {});
  explicit FusedAdagrad(std::vector<torch::Tensor> parameters, const FusedAdagradOptions& defaults = {});

  torch::Tensor step(LossClosure closure = nullptr) override;
  UpdateRule update_rule(size_t group) const override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
};

}  // namespace lockstep
