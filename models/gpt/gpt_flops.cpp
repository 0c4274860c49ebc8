#include "lockstep/models/gpt/gpt_flops.h"

#include <fmt/format.h>

#include <stdexcept>

namespace lockstep {

double gpt_training_flops(const GptOptions& given, int64_t length) {
  if (length < 1)
    throw std::invalid_argument(
        fmt::format("[gpt_training_flops] expected a length of 1 or more, but got {}", length));
  const GptOptions options = complete_gpt_options(given);
  const int64_t looked_up = (options.has_tied_head ? 0 : options.vocabulary_size) +
                            (options.positions == GptPositions::kLearned ? options.max_length : 0);
  int64_t multiplied = num_gpt_parameters(options) - looked_up * options.width;
  if (options.num_experts > 0) {
    GptOptions active = options;
    active.num_experts = options.experts_per_token;
    const int64_t idle = options.num_experts - options.experts_per_token;
    // The router multiplies with the rows of all experts.
    multiplied -=
        num_gpt_parameters(options) - num_gpt_parameters(active) - options.num_layers * idle * options.width;
  }
  const auto attention = static_cast<double>(options.num_layers) *
                         static_cast<double>(options.num_heads * options.head_width) *
                         static_cast<double>(length);
  return 6 * static_cast<double>(multiplied) + 12 * attention;
}

}  // namespace lockstep
