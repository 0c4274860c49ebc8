#include "lockstep/datasets/tokens/ngram_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <vector>

#include "lockstep/datasets/tokens/generated_language.h"

namespace lockstep {
namespace {

using Tokens = std::vector<uint32_t>;

/// The model's formula, by looking through all texts again for each probability.
double slow_probability(const std::vector<Tokens>& texts, uint32_t vocab_size, const Tokens& context,
                        uint32_t token) {
  const double shorter =
      context.empty()
          ? 1.0 / vocab_size
          : slow_probability(texts, vocab_size, Tokens(context.begin() + 1, context.end()), token);
  double with_token = 0;
  double with_any = 0;
  std::set<uint32_t> different;
  for (const auto& text : texts) {
    for (size_t at = std::max<size_t>(context.size(), 1); at < text.size(); ++at) {
      if (!std::equal(context.begin(), context.end(),
                      text.begin() + static_cast<ptrdiff_t>(at - context.size())))
        continue;
      ++with_any;
      with_token += text[at] == token ? 1 : 0;
      different.insert(text[at]);
    }
  }
  if (with_any == 0) return shorter;
  const auto num_different = static_cast<double>(different.size());
  return (with_token + num_different * shorter) / (with_any + num_different);
}

TEST(NgramModel, InterpolatesItsCountsByTheFormula) {
  std::mt19937 random(1);
  constexpr uint32_t kVocabSize = 5;
  std::vector<Tokens> texts;
  for (const size_t length : {0U, 1U, 2U, 30U, 50U}) {
    Tokens text(length);
    for (auto& token : text) token = random() % (kVocabSize - 1);  // the last token is never seen
    texts.push_back(text);
  }
  for (const int order : {1, 2, 4}) {
    NgramModel model({.order = order, .vocab_size = kVocabSize});
    for (const auto& text : texts) model.count(text);
    for (int i = 0; i < 200; ++i) {
      Tokens context(static_cast<size_t>(order) - 1);
      for (auto& token : context) token = random() % kVocabSize;
      const uint32_t token = random() % kVocabSize;
      EXPECT_NEAR(model.probability(context, token), slow_probability(texts, kVocabSize, context, token),
                  1e-12);
    }
  }
}

TEST(NgramModel, LosesTheLogProbabilitiesOfAllTokensButTheFirst) {
  NgramModel model({.order = 3, .vocab_size = 4});
  model.count(Tokens{0, 1, 2, 3, 0, 1, 2, 2, 1});
  const Tokens text{0, 1, 2, 0, 3};
  double loss = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    double sum = 0;
    const std::span<const uint32_t> context(text.data(), i);
    for (uint32_t token = 0; token < 4; ++token) sum += model.probability(context, token);
    EXPECT_NEAR(sum, 1, 1e-12);
    loss -= std::log(model.probability(context, text[i]));
  }
  EXPECT_NEAR(model.loss(text), loss, 1e-12);
  EXPECT_EQ(model.loss(Tokens{2}), 0);
  EXPECT_EQ(model.loss({}), 0);
}

TEST(NgramModel, KnowsNothingBeforeItCounts) {
  const NgramModel model({.order = 5, .vocab_size = 10});
  EXPECT_EQ(model.num_ngrams(), 0U);
  EXPECT_NEAR(model.probability(Tokens{1, 2}, 3), 0.1, 1e-15);
}

TEST(NgramModel, CountsDifferentNgramsOfEachOrder) {
  NgramModel model({.order = 2, .vocab_size = 10});
  model.count(Tokens{1, 2, 1, 2, 3});
  EXPECT_EQ(model.num_ngrams(), 6U);  // 1, 2, 3 and 12, 21, 23
}

struct NgramLosses {
  double bigrams = 0;
  double pentagrams = 0;
};

/// The losses per token on held-out text of the generated language, in sequences of so many tokens, after a
/// million tokens.
NgramLosses losses_on_language(const GeneratedLanguage& language, size_t sequence_length) {
  NgramModel bigrams({.order = 2, .vocab_size = language.vocab_size()});
  NgramModel pentagrams({.order = 5, .vocab_size = language.vocab_size()});
  Tokens tokens(sequence_length + 1);
  constexpr uint64_t kCounted = 1'024'000;
  for (uint64_t i = 0; i < kCounted / sequence_length; ++i) {
    language.draw({.seed = 1, .index = i}, tokens);
    bigrams.count(tokens);
    pentagrams.count(tokens);
  }
  constexpr int kHeldOut = 400;
  const double num_tokens = kHeldOut * static_cast<double>(sequence_length);
  NgramLosses losses;
  for (uint64_t i = 0; i < kHeldOut; ++i) {
    language.draw({.seed = 2, .index = i}, tokens);
    losses.bigrams += bigrams.loss(tokens) / num_tokens;
    losses.pentagrams += pentagrams.loss(tokens) / num_tokens;
  }
  return losses;
}

// Held-out text of the generated language is predicted at least 0.3 nats worse than it could be, and no model
// beats its entropy.
TEST(NgramModel, StaysFarAboveTheEntropyOfTheGeneratedLanguage) {
  const GeneratedLanguage language;
  for (const size_t sequence_length : {128U, 256U}) {
    const NgramLosses losses = losses_on_language(language, sequence_length);
    const double entropy = language.entropy(static_cast<int64_t>(sequence_length));
    EXPECT_GT(losses.pentagrams, entropy + 0.3);
    EXPECT_GT(losses.bigrams, entropy + 0.3);
    // The conditional entropy of a token given the one before it, of 20 million tokens in sequences of 256.
    // In those of 128, it is the same but for the few tokens at the beginning.
    EXPECT_NEAR(losses.bigrams, 2.073, 0.01);
    if (sequence_length == 256) {
      EXPECT_GT(losses.bigrams, losses.pentagrams + 0.05);
    }
  }
}

TEST(NgramModel, RefusesWrongOptionsAndTokens) {
  EXPECT_THROW(NgramModel({.order = 0, .vocab_size = 2}), std::invalid_argument);
  EXPECT_THROW(NgramModel({.order = 17, .vocab_size = 2}), std::invalid_argument);
  EXPECT_THROW(NgramModel({.order = 2, .vocab_size = 0}), std::invalid_argument);
  NgramModel model({.order = 2, .vocab_size = 2});
  EXPECT_THROW(model.count(Tokens{0, 2}), std::invalid_argument);
  EXPECT_THROW((void)model.loss(Tokens{2}), std::invalid_argument);
  EXPECT_THROW((void)model.probability(Tokens{}, 2), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
