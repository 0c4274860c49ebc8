#include "lockstep/apps/train_gpt/training/gpt_samples.h"

#include <ATen/core/Generator.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/train_gpt/training/gpt_axes.h"
#include "lockstep/models/gpt/gpt_generation.h"
#include "lockstep/runtime/devices/internal/random_state.h"

namespace lockstep::apps {
namespace {

constexpr size_t kTexts = 3;

std::vector<int64_t> checked_prompt(const GptTrainOptions& options, const TextCodec& codec,
                                    const GptOptions& model) {
  auto tokens = codec.tokens(options.sample);
  const auto most = static_cast<size_t>(model.max_length) - 1;
  if (tokens.size() > most && !options.sample.empty()) {
    throw UsageError(c10::str("--sample: expected a text of at most ", most,
                              " tokens, the model's positions, "
                              "but got ",
                              tokens.size()));
  }
  for (const int64_t token : tokens) {
    if (token < 0 || token >= model.vocabulary_size) {
      throw UsageError(c10::str("--sample: expected tokens below the size of the vocabulary, ",
                                model.vocabulary_size, ", but got ", token));
    }
  }
  return tokens;
}

}  // namespace

std::string continued_text(const TextCodec& codec, const std::vector<int64_t>& prompt,
                           const std::vector<int64_t>& tokens) {
  auto all = prompt;
  all.insert(all.end(), tokens.begin(), tokens.end());
  const std::string whole = codec.text(all);
  const std::string given = codec.text(prompt);
  return whole.starts_with(given) ? whole.substr(given.size()) : codec.text(tokens);
}

GptSamples::GptSamples(const GptTrainOptions& options, const TextCodec& codec, Mirrored<Gpt>& model,
                       Receiver receive)
    : options_(options),
      codec_(codec),
      model_(model),
      receive_(std::move(receive)),
      prompt_(checked_prompt(options, codec, model.primary()->options())) {}

void GptSamples::on_epoch_end(FitState& state) {
  if (options_.sample_tokens == 0) return;
  std::vector<std::vector<int64_t>> texts;
  // Units compute on all replicas together, and so do experts of several ranks.
  const bool shares_experts = !axis_of_experts(state.strategy().mesh()).empty();
  const bool all_write = state.strategy().sharding().stage == 3 || shares_experts;
  const auto write = [&](ReplicaContext& replica, Gpt& model) {
    if (replica.replica_id() != 0 && !all_write) return;
    auto generator = new_generator(replica.device());
    generator.set_current_seed(options_.seed + static_cast<uint64_t>(state.epoch));
    GenerationOptions generation{.max_new_tokens = options_.sample_tokens,
                                 .temperature = options_.temperature,
                                 .top_k = std::min(options_.top_k, model->options().vocabulary_size),
                                 .top_p = options_.top_p,
                                 .generator = generator};
    // A token's experts may round differently for each rank, so all write to the end.
    if (const auto end = codec_.end_of_text(); end && !shares_experts) generation.stop_tokens = {*end};
    auto written = generate(model, std::vector<std::vector<int64_t>>(kTexts, prompt_), generation);
    if (replica.rank() == 0) texts = std::move(written);
  };
  state.strategy().run(write, model_);
  const std::string title = c10::str("after step ", state.global_step);
  for (auto& text : texts) {
    if (const auto end = codec_.end_of_text())
      text.erase(std::find(text.begin(), text.end(), *end), text.end());
    receive_({.title = title, .prompt = options_.sample, .text = continued_text(codec_, prompt_, text)});
  }
}

}  // namespace lockstep::apps
