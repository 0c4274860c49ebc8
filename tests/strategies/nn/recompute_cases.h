#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdint>
#include <vector>

#include "lockstep/strategies/nn/recompute.h"

namespace lockstep {

inline constexpr double kRounding = 1e-12;

/// x + dropout(second(tanh(first(x)))), a part that one might recompute: [n, width] to the same.
struct ResidualBlockImpl : public torch::nn::Cloneable<ResidualBlockImpl> {
  explicit ResidualBlockImpl(int64_t width = 4, double dropout_probability = 0.4)
      : width(width), dropout_probability(dropout_probability) {
    reset();
  }
  void reset() override {
    first = register_module("first", torch::nn::Linear(width, 3 * width));
    second = register_module("second", torch::nn::Linear(3 * width, width));
    dropout = register_module("dropout", torch::nn::Dropout(dropout_probability));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x + dropout(second(torch::tanh(first(x)))); }

  int64_t width;
  double dropout_probability;
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(ResidualBlock);

/// The parts of a StackOfBlocks that are recomputed.
enum class Recomputes { kNothing, kEachBlock, kPairs, kPairsAndTheirBlocks };

/// Blocks one after another; the last is the first once more.
struct StackOfBlocksImpl : public torch::nn::Cloneable<StackOfBlocksImpl> {
  explicit StackOfBlocksImpl(Recomputes recomputes = Recomputes::kNothing, int64_t width = 4,
                             double dropout_probability = 0.4)
      : recomputes(recomputes), width(width), dropout_probability(dropout_probability) {
    reset();
  }
  void reset() override {
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < 3; ++i) blocks->push_back(ResidualBlock(width, dropout_probability));
    to(torch::kDouble);
  }
  torch::Tensor run_block(size_t i, const torch::Tensor& x) {
    const auto block = blocks->ptr<ResidualBlockImpl>(i % 3);
    const bool is_own =
        recomputes == Recomputes::kEachBlock || recomputes == Recomputes::kPairsAndTheirBlocks;
    return is_own ? recompute(block, x) : block->forward(x);
  }
  torch::Tensor forward(torch::Tensor x) {
    for (size_t i = 0; i < 4; i += 2) {
      const auto pair = [this, i](const torch::Tensor& in) { return run_block(i + 1, run_block(i, in)); };
      const bool is_own = recomputes == Recomputes::kPairs || recomputes == Recomputes::kPairsAndTheirBlocks;
      x = is_own ? recompute(pair, x) : pair(x);
    }
    return x;
  }

  Recomputes recomputes;
  int64_t width;
  double dropout_probability;
  torch::nn::ModuleList blocks{nullptr};
};
TORCH_MODULE(StackOfBlocks);

}  // namespace lockstep
