#include "lockstep/apps/train_gpt/data/baselines.h"

#include <algorithm>
#include <numeric>
#include <variant>

#include "lockstep/datasets/tokens/ngram_model.h"

namespace lockstep::apps {
namespace {

constexpr int64_t kMostTokens = 2'000'000;

/// Calls `visit` with each of the first `count` sequences: its tokens and the one that follows them.
template <typename Visit>
void for_each_sequence(const TokenDataset& dataset, int64_t count, const Visit& visit) {
  for (int64_t i = 0; i < std::min(count, dataset.num_sequences()); ++i) {
    const auto example = dataset.get_batch({static_cast<size_t>(i)});
    const auto* data = example.data.const_data_ptr<int64_t>();
    const auto* target = example.target.const_data_ptr<int64_t>();
    std::vector<uint32_t> tokens{static_cast<uint32_t>(data[0])};
    tokens.insert(tokens.end(), target, target + example.target.numel());
    visit(tokens);
  }
}

double loss_of(const TokenDataset& test, NgramModel model) {
  double loss = 0;
  int64_t tokens = 0;
  for_each_sequence(test, test.num_sequences(), [&](const std::vector<uint32_t>& sequence) {
    loss += model.loss(sequence);
    tokens += static_cast<int64_t>(sequence.size()) - 1;
  });
  return loss / static_cast<double>(tokens);
}

double best_loss(const TokenDataset& test, const GeneratedLanguage& language) {
  double loss = 0;
  int64_t tokens = 0;
  for_each_sequence(test, test.num_sequences(), [&](const std::vector<uint32_t>& sequence) {
    const auto logs = language.log_probabilities(sequence);
    loss -= std::accumulate(logs.begin(), logs.end(), 0.0);
    tokens += static_cast<int64_t>(logs.size());
  });
  return loss / static_cast<double>(tokens);
}

}  // namespace

Baselines measure_baselines(const GptData& data, int64_t most_tokens) {
  Baselines baselines;
  const auto length = data.test.get_batch({0}).target.numel();
  const auto count = std::max<int64_t>(std::min(most_tokens, kMostTokens) / length, 1);
  const auto count_with = [&](int order) {
    NgramModel model({.order = order, .vocab_size = static_cast<uint32_t>(data.vocabulary_size)});
    for_each_sequence(data.train, count, [&](const std::vector<uint32_t>& tokens) { model.count(tokens); });
    return loss_of(data.test, std::move(model));
  };
  baselines.bigram = count_with(2);
  baselines.five_gram = count_with(5);
  if (const auto* text = std::get_if<GeneratedText>(&data.test.source())) {
    baselines.entropy = text->entropy();
    baselines.best = best_loss(data.test, text->language());
  }
  return baselines;
}

std::vector<ReferenceLoss> reference_losses(const Baselines& baselines) {
  std::vector<ReferenceLoss> losses;
  if (baselines.best) losses.push_back({"entropy", *baselines.best});
  if (baselines.five_gram) losses.push_back({"5-gram model", *baselines.five_gram});
  if (baselines.bigram) losses.push_back({"bigram model", *baselines.bigram});
  return losses;
}

}  // namespace lockstep::apps
