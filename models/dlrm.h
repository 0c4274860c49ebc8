#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace lockstep {

struct DlrmOptions {
  int64_t num_numbers = 13;
  int64_t num_categories = 26;
  int64_t embedding_dim = 16;
  /// Hidden layers for the numbers, before the layer of embedding_dim.
  std::vector<int64_t> bottom_units{64};
  std::vector<int64_t> top_units{128, 64};  ///< hidden layers before the last layer
};

/// The network of a DLRM (Naumov et al., "Deep Learning Recommendation Model for Personalization and
/// Recommendation Systems", 2019): dense layers turn the numbers into one more embedding; the products of all
/// pairs of embeddings, and that embedding itself, go through dense layers. The caller looks up the
/// categories' embeddings, since their tables may be larger than a device. Trains on shards of any size,
/// including 0.
///
/// Example:
///
///     Dlrm model(DlrmOptions{.embedding_dim = 8});
///     auto logits = model(torch::rand({32, 13}), torch::rand({32, 26, 8}));
class DlrmImpl : public torch::nn::Cloneable<DlrmImpl> {
 public:
  /// Throws std::invalid_argument if an option is below 1.
  explicit DlrmImpl(const DlrmOptions& options = {});

  void reset() override;

  /// Maps numbers [N, num_numbers] and embeddings [N, num_categories, embedding_dim] to logits [N]. Throws
  /// std::invalid_argument for other shapes.
  torch::Tensor forward(const torch::Tensor& numbers, const torch::Tensor& embedded);

  const DlrmOptions& options() const { return options_; }

 private:
  DlrmOptions options_;
  torch::nn::Sequential bottom_{nullptr};
  torch::nn::Sequential top_{nullptr};
};

class Dlrm : public torch::nn::ModuleHolder<DlrmImpl> {
 public:
  using Impl = DlrmImpl;
  using torch::nn::ModuleHolder<DlrmImpl>::ModuleHolder;

  Dlrm() = default;
  explicit Dlrm(const DlrmOptions& options);
};

}  // namespace lockstep
