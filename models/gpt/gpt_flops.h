#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/models/gpt/gpt_options.h"

namespace lockstep {

/// Returns how many floating-point operations the matrix products of a training step take for each token, in
/// forward and backward, for sequences of `length` tokens: 6 N + 12 L H Q T (Chowdhery et al., "PaLM: Scaling
/// Language Modeling with Pathways", 2022, appendix B), with L layers, H heads of width Q and sequences of T
/// tokens. N are the parameters that a token is multiplied with: all but tables that are only looked up, and
/// experts that the token does not use. What is computed a second time to save memory does not count.
///
/// Throws std::invalid_argument as complete_gpt_options(), and if `length` is below 1.
///
///     double flops_per_second = tokens_per_second * gpt_training_flops(options, 1024);
double gpt_training_flops(const GptOptions& options, int64_t length);

/// Returns how many of these each of GptImpl::blocks() takes: none the tokens' embedding, and as many each
/// layer. They are costs for PipelineOptions, so that stages have about as much to compute. Throws as
/// gpt_training_flops().
std::vector<double> gpt_block_flops(const GptOptions& options, int64_t length);

}  // namespace lockstep
