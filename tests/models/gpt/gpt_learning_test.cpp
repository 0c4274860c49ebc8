// A Gpt learns a language whose best prediction is known.
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <vector>

#include "lockstep/datasets/tokens/generated_text.h"
#include "lockstep/datasets/tokens/ngram_model.h"
#include "lockstep/models/gpt/gpt.h"
#include "lockstep/models/gpt/gpt_presets.h"
#include "lockstep/tests/support/sanitizer.h"

namespace lockstep {
namespace {

constexpr int64_t kLength = 64;
constexpr int64_t kBatch = 16;
constexpr int64_t kSteps = 300;
constexpr int64_t kHeldOut = 128;
constexpr uint64_t kTrainSeed = 1;
constexpr uint64_t kTestSeed = 2;

/// One word of each kind, so that a model spends its time on what words far back decide.
constexpr GeneratedLanguageOptions kFewWords{.num_classes = 4,
                                             .nouns_per_class = 1,
                                             .num_prepositions = 1,
                                             .num_places = 1,
                                             .num_verbs = 1,
                                             .num_items = 1,
                                             .smallest_count = 2,
                                             .largest_count = 4,
                                             .num_brackets = 3,
                                             .max_depth = 1};

torch::data::Example<> sequences(const GeneratedText& text, int64_t first, int64_t count) {
  std::vector<size_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), static_cast<size_t>(first));
  return text.get_batch(indices);
}

torch::Tensor mean_loss(Gpt& gpt, const torch::data::Example<>& batch) {
  return torch::nn::functional::cross_entropy(gpt(batch.data).flatten(0, 1), batch.target.flatten());
}

void train(Gpt& gpt, const GeneratedText& text) {
  constexpr double kRate = 0.006;
  constexpr double kWarmup = 20;
  torch::optim::AdamW optimizer(gpt->parameters(),
                                torch::optim::AdamWOptions(kRate).betas(std::make_tuple(0.9, 0.95)));
  for (int64_t step = 0; step < kSteps; ++step) {
    const double rise = static_cast<double>(step + 1) / kWarmup;
    const double fall = static_cast<double>(kSteps - step) / static_cast<double>(kSteps);
    for (auto& group : optimizer.param_groups()) group.options().set_lr(kRate * std::min(rise, fall));
    optimizer.zero_grad();
    mean_loss(gpt, sequences(text, step * kBatch, kBatch)).backward();
    torch::nn::utils::clip_grad_norm_(gpt->parameters(), 1);
    optimizer.step();
  }
}

struct HeldOutLosses {
  double best = 0;  ///< of the language's own probabilities
  double pentagrams = 0;
};

/// The losses on the held-out sequences; 5-grams are counted in the sequences that the Gpt is trained on.
HeldOutLosses held_out_losses(const GeneratedLanguage& language) {
  NgramModel pentagrams({.order = 5, .vocab_size = language.vocab_size()});
  std::vector<uint32_t> tokens(kLength + 1);
  for (uint64_t i = 0; i < kSteps * kBatch; ++i) {
    language.draw({.seed = kTrainSeed, .index = i}, tokens);
    pentagrams.count(tokens);
  }
  constexpr double kTokens = kHeldOut * kLength;
  HeldOutLosses losses;
  for (uint64_t i = 0; i < kHeldOut; ++i) {
    language.draw({.seed = kTestSeed, .index = i}, tokens);
    const auto logs = language.log_probabilities(tokens);
    losses.best -= std::accumulate(logs.begin(), logs.end(), 0.0) / kTokens;
    losses.pentagrams += pentagrams.loss(tokens) / kTokens;
  }
  return losses;
}

// 5-grams cannot tell which ending and pronoun agree with a subject, and which bracket closes.
TEST(GptLearningTest, NearlyReachesTheEntropyThatNgramsStayAbove) {
  if (kHasSanitizer) GTEST_SKIP() << "learning takes minutes under a sanitizer; other tests train this model";
  const GeneratedText text(
      {.count = kSteps * kBatch, .sequence_length = kLength, .seed = kTrainSeed, .language = kFewWords});
  const GeneratedText test(
      {.count = kHeldOut, .sequence_length = kLength, .seed = kTestSeed, .language = kFewWords});
  torch::manual_seed(1);
  GptOptions options = gpt_preset("small");
  options.vocabulary_size = text.language().vocab_size();
  options.max_length = kLength;
  options.width = 64;
  options.hidden_width = 172;
  Gpt gpt(options);
  train(gpt, text);

  const torch::NoGradGuard no_grad;
  const double loss = mean_loss(gpt, sequences(test, 0, kHeldOut)).item<double>();
  const HeldOutLosses losses = held_out_losses(text.language());
  EXPECT_LT(loss, losses.best + 0.05);
  EXPECT_GT(loss, losses.best - 0.005);
  EXPECT_GT(losses.pentagrams, losses.best + 0.2);
}

TEST(GptLearningTest, TheSmallPresetHasTheVocabularyOfTheGeneratedLanguage) {
  EXPECT_EQ(gpt_preset("small").vocabulary_size, GeneratedLanguage().vocab_size());
}

}  // namespace
}  // namespace lockstep
