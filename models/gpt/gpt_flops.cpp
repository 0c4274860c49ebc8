#include "lockstep/models/gpt/gpt_flops.h"

#include <fmt/format.h>

#include <stdexcept>

namespace lockstep {
namespace {

// A multiplication and an addition in forward, and twice as many in backward.
constexpr double kFlopsOfParameter = 6;

}  // namespace

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
  return kFlopsOfParameter * static_cast<double>(multiplied) + 12 * attention;
}

std::vector<double> gpt_block_flops(const GptOptions& given, int64_t length) {
  const double all = gpt_training_flops(given, length);
  const GptOptions options = complete_gpt_options(given);
  const int64_t of_norm = options.norm == GptNorm::kLayerNorm ? 2 : 1;
  const double head =
      kFlopsOfParameter * static_cast<double>((options.vocabulary_size + of_norm) * options.width);
  const auto layers = static_cast<size_t>(options.num_layers);
  std::vector<double> flops(layers + 2, (all - head) / static_cast<double>(layers));
  flops.front() = 0;
  flops.back() = head;
  return flops;
}

}  // namespace lockstep
