#pragma once

#include <torch/types.h>

#include "lockstep/models/gpt/gpt_generation.h"

namespace lockstep {

/// Throws std::invalid_argument naming the option that is out of range.
void check_token_choice(const GenerationOptions& options);

/// Returns a token [B] for each row of logits [B, V].
torch::Tensor choose_tokens(const torch::Tensor& logits, const GenerationOptions& options);

}  // namespace lockstep
