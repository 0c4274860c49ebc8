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
  std::vector<int64_t> bottom_units{64};    ///< before the layer of embedding_dim that ends the numbers' part
  std::vector<int64_t> top_units{128, 64};  ///< before the last layer
};

/// The network of a DLRM (Naumov et al., "Deep Learning Recommendation Model for Personalization and
/// Recommendation Systems", 2019): dense layers make one more embedding of the numbers; the products of all
/// pairs of embeddings, and that one itself, go through dense layers. The embeddings of the categories are
/// looked up by whoever calls it, since their tables may be larger than a device. It trains on shards of any
/// size, 0 included.
class DlrmImpl : public torch::nn::Cloneable<DlrmImpl> {
 public:
  /// Throws std::invalid_argument for options below 1.
  explicit DlrmImpl(const DlrmOptions& options = {});

  void reset() override;

  /// Numbers [N, num_numbers] and embeddings [N, num_categories, embedding_dim] to logits [N]. Throws
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
