#include "lockstep/models/gpt/gpt_generation.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "lockstep/models/gpt/internal/token_choice.h"

namespace lockstep {
namespace {

using Tokens = std::vector<int64_t>;

/// The sequences that are still growing.
struct Growing {
  std::vector<size_t> prompts;     ///< the prompt of each row
  std::vector<int64_t> remaining;  ///< tokens that each may still get
};

void check_prompt(const Tokens& prompt, size_t index, const GptOptions& model) {
  const auto length = static_cast<int64_t>(prompt.size());
  if (length < 1 || length > model.max_length) {
    throw std::invalid_argument(c10::str("[generate] prompt ", index, ": expected 1 to ", model.max_length,
                                         " tokens, but got ", length));
  }
  const auto outside = std::find_if(prompt.begin(), prompt.end(), [&](int64_t token) {
    return token < 0 || token >= model.vocabulary_size;
  });
  if (outside != prompt.end()) {
    throw std::invalid_argument(c10::str("[generate] prompt ", index, ": expected tokens from 0 to ",
                                         model.vocabulary_size - 1, ", but got ", *outside));
  }
}

/// Fills rows from the left, so that all prompts end at the same place. Token 0 fills: it is masked.
torch::Tensor padded_prompts(const std::vector<Tokens>& prompts, const Growing& rows, int64_t longest) {
  auto padded = torch::zeros({static_cast<int64_t>(rows.prompts.size()), longest}, torch::kLong);
  auto values = padded.accessor<int64_t, 2>();
  for (size_t row = 0; row < rows.prompts.size(); ++row) {
    const Tokens& prompt = prompts[rows.prompts[row]];
    auto* last = &values[static_cast<int64_t>(row)][longest - 1];
    std::copy(prompt.begin(), prompt.end(), last + 1 - static_cast<ptrdiff_t>(prompt.size()));
  }
  return padded;
}

/// Adds each row's new token to its sequence, and returns the rows that go on.
std::vector<int64_t> add_tokens(const torch::Tensor& tokens, const GenerationOptions& options, Growing& rows,
                                std::vector<Tokens>& generated) {
  const auto values = tokens.accessor<int64_t, 1>();
  std::vector<int64_t> kept;
  kept.reserve(rows.prompts.size());
  Growing next;
  for (size_t row = 0; row < rows.prompts.size(); ++row) {
    const int64_t token = values[static_cast<int64_t>(row)];
    generated[rows.prompts[row]].push_back(token);
    const auto& stops = options.stop_tokens;
    if (rows.remaining[row] == 1 || std::find(stops.begin(), stops.end(), token) != stops.end()) continue;
    kept.push_back(static_cast<int64_t>(row));
    next.prompts.push_back(rows.prompts[row]);
    next.remaining.push_back(rows.remaining[row] - 1);
  }
  rows = std::move(next);
  return kept;
}

}  // namespace

std::vector<Tokens> generate(const Gpt& model, const std::vector<Tokens>& prompts,
                             const GenerationOptions& options) {
  check_token_choice(options);
  const GptOptions& of_model = model->options();
  std::vector<Tokens> generated(prompts.size());
  Growing rows;
  size_t longest = 0;
  int64_t steps = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    check_prompt(prompts[i], i, of_model);
    const int64_t room = of_model.max_length - static_cast<int64_t>(prompts[i].size());
    const int64_t remaining = std::min(options.max_new_tokens, room);
    if (remaining == 0) continue;
    rows.prompts.push_back(i);
    rows.remaining.push_back(remaining);
    longest = std::max(longest, prompts[i].size());
    steps = std::max(steps, remaining);
  }
  if (rows.prompts.empty()) return generated;

  const c10::InferenceMode no_grad;
  GptCacheOptions cached{.batch_size = static_cast<int64_t>(rows.prompts.size()),
                         .capacity = static_cast<int64_t>(longest) + steps};
  for (const size_t prompt : rows.prompts)
    cached.padding.push_back(static_cast<int64_t>(longest - prompts[prompt].size()));
  GptCache cache(of_model, std::move(cached));
  const auto device = model->parameters().front().device();
  auto tokens = padded_prompts(prompts, rows, static_cast<int64_t>(longest)).to(device);
  while (true) {
    tokens = choose_tokens(model->next_logits(tokens, cache), options);
    const auto kept = add_tokens(tokens.cpu(), options, rows, generated);
    if (kept.empty()) return generated;
    if (static_cast<int64_t>(kept.size()) < cache.batch_size()) {
      cache.keep_rows(kept);
      tokens = tokens.index_select(0, torch::tensor(kept, torch::kLong).to(device));
    }
    tokens = tokens.unsqueeze(1);
  }
}

}  // namespace lockstep
