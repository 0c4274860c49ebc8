#pragma once

#include <torch/types.h>

#include <cstdint>

#include "lockstep/models/gpt/gpt_options.h"

namespace lockstep {

/// Factors that rotate the vectors of a head by its position. Undefined tensors if positions are learned.
struct RotaryFactors {
  torch::Tensor cosines;  ///< [..., head_width]
  torch::Tensor sines;    ///< the same shape; negative in the first half

  bool is_defined() const { return cosines.defined(); }
};

/// Returns the factors of positions 0 to `length` - 1, [length, head_width], in float32. Frequencies are
/// computed in float32, too, as those that published models were trained with.
RotaryFactors rotary_factors(const GptOptions& options, int64_t length, torch::Device device);

/// Rotates heads [B, T, heads, head_width] by factors [T, head_width] or [B, T, head_width]. Numbers i and
/// i + head_width / 2 of a head make a pair, as in Hugging Face's Llama (not neighbours, as in Meta's files).
torch::Tensor rotate(const torch::Tensor& heads, const RotaryFactors& factors);

}  // namespace lockstep
