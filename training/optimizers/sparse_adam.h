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

/// The options of Python's torch.optim.SparseAdam.
struct SparseAdamOptions : public torch::optim::OptimizerCloneableOptions<SparseAdamOptions> {
  SparseAdamOptions(double lr = 1e-3)
      : lr_(lr) {}  // NOLINT: implicit, so that `SparseAdam(parameters, 1e-3)` compiles
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

/// Adam (Kingma and Ba, 2014) for embedding tables: steps only the rows that a sparse gradient has, and
/// updates only their moments. LibTorch lacks this optimizer. It equals Python's torch.optim.SparseAdam
/// except that `eps` is added as in Adam, after the correction of the second moment. A parameter's state
/// takes memory only once the parameter has had a gradient.
///
/// A step throws std::invalid_argument if a gradient is not sparse in its first dimension alone.
///
/// Example:
///
///     torch::nn::Embedding table(torch::nn::EmbeddingOptions(1000, 16).sparse(true));
///     SparseAdam optimizer(table->parameters(), 1e-3);
class SparseAdam : public torch::optim::Optimizer, public HasUpdateRule {
 public:
  /// Groups without options of their own take `defaults`. Throws std::invalid_argument if an option is out of
  /// range.
  explicit SparseAdam(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                      const SparseAdamOptions& defaults = {});
  explicit SparseAdam(std::vector<torch::Tensor> parameters, const SparseAdamOptions& defaults = {});

  torch::Tensor step(LossClosure closure = nullptr) override;
  UpdateRule update_rule(size_t group) const override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
};

}  // namespace lockstep
