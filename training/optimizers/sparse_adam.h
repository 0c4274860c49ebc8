#pragma once

#include <torch/arg.h>
#include <torch/optim/adam.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <cstddef>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/variables/optimizer_rule.h"

namespace lockstep {

/// As torch.optim.SparseAdam's in Python.
struct SparseAdamOptions : public torch::optim::OptimizerCloneableOptions<SparseAdamOptions> {
  SparseAdamOptions(double lr = 1e-3)
      : lr_(lr) {}  // NOLINT: a learning rate is enough, `SparseAdam(parameters, 1e-3)`
  using Betas = std::tuple<double, double>;
  TORCH_ARG(double, lr);
  TORCH_ARG(Betas, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(bool, maximize) = false;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(double value) override { lr(value); }
};

/// Adam (Kingma and Ba, 2014) for embedding tables: of a sparse gradient it steps the rows that it has, their
/// moments included, and touches no others. LibTorch has none; Python's torch.optim.SparseAdam is that but
/// for `eps`, which counts here as it does in Adam, after the correction of the second moment. What it
/// remembers of a parameter takes memory only once that has a gradient.
///
/// Throws std::invalid_argument for gradients that are not sparse in their rows, and only these.
class SparseAdam : public torch::optim::Optimizer, public HasUpdateRule {
 public:
  /// Throws std::invalid_argument for options out of range. Groups without options of their own take
  /// `defaults`.
  explicit SparseAdam(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                      const SparseAdamOptions& defaults = {});
  explicit SparseAdam(std::vector<torch::Tensor> parameters, const SparseAdamOptions& defaults = {});

  torch::Tensor step(LossClosure closure = nullptr) override;
  UpdateRule update_rule(size_t group) const override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
};

}  // namespace lockstep
