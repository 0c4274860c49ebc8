#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/models/gpt/gpt_options.h"

namespace lockstep {

struct GptCacheOptions {
  int64_t batch_size = 1;  ///< sequences
  int64_t capacity = 0;    ///< tokens that each sequence has room for; 0: the model's max_length
  /// How many of each sequence's first tokens stand for nothing, so that sequences of different lengths end
  /// at the same place. Empty: none.
  std::vector<int64_t> padding;
};

/// Keys and values of the tokens that a Gpt has read, so that it reads each token of a growing sequence once.
/// Its memory is allocated when the first tokens are read: 2 * layers * batch_size * num_key_value_heads *
/// capacity * head_width numbers, of the dtype and on the device of the keys. Not thread-safe.
///
/// Example:
///
///     torch::NoGradGuard no_grad;
///     GptCache cache(model->options(), {.batch_size = 1, .capacity = 100});
///     auto next = model->next_logits(prompt, cache).argmax(-1, /*keepdim=*/true);  // prompt is [1, T]
///     next = model->next_logits(next, cache).argmax(-1, /*keepdim=*/true);
class GptCache {
 public:
  /// Throws std::invalid_argument naming an option that is out of range.
  GptCache(const GptOptions& model, GptCacheOptions options);

  int64_t batch_size() const { return options_.batch_size; }
  int64_t capacity() const { return options_.capacity; }
  /// Tokens read so far, padding included.
  int64_t length() const { return length_; }

  /// Keeps only these sequences, in this order. Copies them.
  void keep_rows(const std::vector<int64_t>& rows);

 private:
  friend class GptImpl;
  friend class GptBlockImpl;

  struct Layer {
    torch::Tensor keys;    ///< [batch_size, num_key_value_heads, capacity, head_width]
    torch::Tensor values;  ///< the same shape
  };

  /// Adds keys and values [B, K, T, D] behind the first `length` tokens of a layer, and returns those of all
  /// tokens with them. The length is increased after the last layer.
  std::pair<torch::Tensor, torch::Tensor> append(size_t layer, const torch::Tensor& keys,
                                                 const torch::Tensor& values);
  /// Throws std::invalid_argument if tokens [B, T] do not fit.
  void check_room(const torch::Tensor& tokens) const;

  GptOptions model_;
  GptCacheOptions options_;
  int64_t length_ = 0;
  std::vector<Layer> layers_;
  torch::Tensor padding_;         ///< [batch_size] on the model's device; undefined if there is none
  torch::Tensor rotary_cosines_;  ///< of all positions; undefined if positions are learned
  torch::Tensor rotary_sines_;
};

}  // namespace lockstep
