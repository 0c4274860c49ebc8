#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace lockstep {

struct WideAndDeepOptions {
  int64_t num_numbers = 13;
  int64_t num_categories = 26;
  int64_t embedding_dim = 16;
  std::vector<int64_t> hidden_units{256, 128};  ///< hidden layers of the deep part
};

/// The network of a Wide & Deep model (Cheng et al., "Wide & Deep Learning for Recommender Systems", 2016):
/// the sum of a linear model and of dense layers, over numbers and categories. The caller looks up the
/// categories' weights for the linear model and their embeddings for the dense layers, since these tables may
/// be larger than a device. Trains on shards of any size, including 0.
///
/// Example:
///
///     WideAndDeep model(WideAndDeepOptions{.embedding_dim = 8});
///     auto logits = model(torch::rand({32, 13}), torch::rand({32}), torch::rand({32, 26, 8}));
class WideAndDeepImpl : public torch::nn::Cloneable<WideAndDeepImpl> {
 public:
  /// Throws std::invalid_argument if an option is below 1.
  explicit WideAndDeepImpl(const WideAndDeepOptions& options = {});

  void reset() override;

  /// Maps numbers [N, num_numbers], the sum of the categories' weights [N] and their embeddings [N,
  /// num_categories, embedding_dim] to logits [N]. Throws std::invalid_argument for other shapes.
  torch::Tensor forward(const torch::Tensor& numbers, const torch::Tensor& wide,
                        const torch::Tensor& embedded);

  const WideAndDeepOptions& options() const { return options_; }

 private:
  WideAndDeepOptions options_;
  torch::nn::Linear linear_{nullptr};
  torch::nn::Sequential deep_{nullptr};
};

class WideAndDeep : public torch::nn::ModuleHolder<WideAndDeepImpl> {
 public:
  using Impl = WideAndDeepImpl;
  using torch::nn::ModuleHolder<WideAndDeepImpl>::ModuleHolder;

  WideAndDeep() = default;
  explicit WideAndDeep(const WideAndDeepOptions& options);
};

}  // namespace lockstep
