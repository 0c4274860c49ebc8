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
  const auto multiplied = static_cast<double>(num_gpt_parameters(options) - looked_up * options.width);
  const auto attention = static_cast<double>(options.num_layers) *
                         static_cast<double>(options.num_heads * options.head_width) *
                         static_cast<double>(length);
  return 6 * multiplied + 12 * attention;
}

}  // namespace lockstep
