#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/models/gpt/gpt.h"

namespace lockstep {

struct GenerationOptions {
  int64_t max_new_tokens = 128;  ///< of each sequence; the model's max_length may end it earlier
  /// Divides the logits: below 1, likely tokens become more likely. 0 always takes the most likely token.
  double temperature = 1;
  int64_t top_k = 0;  ///< draw among this many of the most likely tokens; 0: among all
  /// Draw among the fewest most likely tokens whose probabilities sum to at least this (Holtzman et al., "The
  /// Curious Case of Neural Text Degeneration", 2020).
  double top_p = 1;
  std::vector<int64_t> stop_tokens;  ///< end a sequence, as its last token
  /// On the model's device. Without one, tokens are drawn from the default generator, and in a replica
  /// function from the replica's random stream.
  std::optional<at::Generator> generator;
};

/// Continues each prompt with tokens that the model predicts, and returns the new tokens of each. Prompts may
/// have different lengths; they are read as one batch. The model reads each token once (see GptCache) and
/// computes as in evaluation. Temperature, top_k and top_p are applied in this order.
///
/// Blocks until all sequences end. The same generator state gives the same tokens. Threads may generate from
/// one model at the same time, with generators of their own. If the model is cut along an axis, its ranks
/// call this together, in a run, with the same prompts and equal states of generators.
///
/// Throws std::invalid_argument naming an option that is out of range, and the prompt if it is empty, has
/// more than max_length tokens or a token outside of the vocabulary.
std::vector<std::vector<int64_t>> generate(const Gpt& model, const std::vector<std::vector<int64_t>>& prompts,
                                           const GenerationOptions& options = {});

}  // namespace lockstep
