#include "lockstep/models/gpt/internal/token_choice.h"

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <tuple>

namespace lockstep {
namespace {

template <typename Value>
void require_choice(bool holds, const char* option, const char* expected, Value given) {
  if (holds) return;
  throw std::invalid_argument(
      c10::str("[generate] expected ", option, " to be ", expected, ", but got ", given));
}

}  // namespace

void check_token_choice(const GenerationOptions& options) {
  require_choice(options.max_new_tokens >= 0, "max_new_tokens", "0 or more", options.max_new_tokens);
  require_choice(options.temperature >= 0 && std::isfinite(options.temperature), "temperature", "0 or more",
                 options.temperature);
  require_choice(options.top_k >= 0, "top_k", "0 or more", options.top_k);
  require_choice(options.top_p > 0 && options.top_p <= 1, "top_p", "above 0 and at most 1", options.top_p);
}

torch::Tensor choose_tokens(const torch::Tensor& logits, const GenerationOptions& options) {
  if (options.temperature == 0) return logits.argmax(-1);
  auto scores = logits.to(torch::kFloat) / options.temperature;
  torch::Tensor candidates;  // tokens by falling score; undefined: all tokens
  const int64_t num_tokens = logits.size(-1);
  const bool has_top_k = options.top_k > 0 && options.top_k < num_tokens;
  if (has_top_k || options.top_p < 1)
    std::tie(scores, candidates) = scores.topk(has_top_k ? options.top_k : num_tokens, -1);
  auto probabilities = scores.softmax(-1);
  if (options.top_p < 1) {
    // The sum before a token tells whether those before it suffice. The first one always stays.
    const auto before = probabilities.cumsum(-1) - probabilities;
    probabilities = probabilities.masked_fill(before >= options.top_p, 0);
  }
  // Draws in proportion, so that the probabilities need not sum to 1.
  const auto drawn = torch::multinomial(probabilities, 1, /*replacement=*/false, options.generator);
  return (candidates.defined() ? candidates.gather(-1, drawn) : drawn).squeeze(-1);
}

}  // namespace lockstep
