#include "lockstep/models/gpt/gpt_generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/tests/models/gpt/small_gpts.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;
using Prompts = std::vector<std::vector<int64_t>>;

Gpt generating_gpt(const GptOptions& options) {
  torch::manual_seed(6);
  Gpt model(options);
  spread_parameters(model);
  return model;
}

torch::Tensor row_of(const std::vector<int64_t>& tokens) {
  return torch::tensor(tokens, torch::kLong).unsqueeze(0);
}

/// Reads the whole sequence again for each token.
std::vector<int64_t> greedy_without_cache(Gpt& model, std::vector<int64_t> tokens, size_t count) {
  const torch::NoGradGuard no_grad;
  model->eval();
  std::vector<int64_t> generated;
  while (generated.size() < count && static_cast<int64_t>(tokens.size()) < model->options().max_length) {
    tokens.push_back(model(row_of(tokens))[0][-1].argmax().item<int64_t>());
    generated.push_back(tokens.back());
  }
  return generated;
}

at::Generator seeded(uint64_t seed) {
  auto generator = at::globalContext().defaultGenerator(torch::kCPU).clone();
  generator.set_current_seed(seed);
  return generator;
}

class GptGenerationTest : public ::testing::TestWithParam<NamedGpt> {};

TEST_P(GptGenerationTest, LogitsWithTheCacheAreThoseWithoutIt) {
  auto model = generating_gpt(GetParam().options);
  model->eval();
  const torch::NoGradGuard no_grad;
  const auto tokens = torch::randint(31, {3, 12}, torch::kLong);
  const auto expected = model(tokens);
  GptCache cache(model->options(), {.batch_size = 3});
  // A prompt, single tokens, and several tokens after others.
  for (const auto& [begin, count] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {4, 1}, {5, 1}, {6, 5}, {11, 1}}) {
    const auto logits = model->next_logits(tokens.narrow(1, begin, count), cache);
    EXPECT_LT((logits - expected.select(1, begin + count - 1)).abs().max().item<double>(), 1e-5) << begin;
    EXPECT_EQ(cache.length(), begin + count);
  }
}

TEST_P(GptGenerationTest, LogitsOfPaddedRowsAreThoseOfEachAlone) {
  auto model = generating_gpt(GetParam().options);
  model->eval();
  const torch::NoGradGuard no_grad;
  const std::vector<int64_t> padding{0, 3, 5};
  const auto tokens = torch::randint(31, {3, 10}, torch::kLong);
  GptCache cache(model->options(), {.batch_size = 3, .padding = padding});
  const auto expect_as_alone = [&](const torch::Tensor& logits, const std::vector<int64_t>& rows) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t begin = padding[static_cast<size_t>(rows[i])];
      const auto alone = tokens[rows[i]].slice(0, begin, cache.length()).unsqueeze(0);
      EXPECT_LT((logits[static_cast<int64_t>(i)] - model(alone)[0][-1]).abs().max().item<double>(), 1e-5)
          << rows[i];
    }
  };
  expect_as_alone(model->next_logits(tokens.narrow(1, 0, 6), cache), {0, 1, 2});
  expect_as_alone(model->next_logits(tokens.narrow(1, 6, 1), cache), {0, 1, 2});
  cache.keep_rows({2, 0});
  const auto kept = tokens.index_select(0, torch::tensor({2, 0}));
  expect_as_alone(model->next_logits(kept.narrow(1, 7, 2), cache), {2, 0});
  expect_as_alone(model->next_logits(kept.narrow(1, 9, 1), cache), {2, 0});
}

TEST_P(GptGenerationTest, GreedyTokensAreThoseWithoutTheCache) {
  auto model = generating_gpt(GetParam().options);
  const Prompts prompts{{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10}, {11, 12, 13}};
  const auto generated = generate(model, prompts, {.max_new_tokens = 5, .temperature = 0});
  for (size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ(generated[i], greedy_without_cache(model, prompts[i], 5)) << i;
}

TEST_P(GptGenerationTest, NoSequenceGoesBeyondTheModelsLength) {
  auto model = generating_gpt(GetParam().options);
  const Prompts prompts{{1, 2, 3}, {4}, std::vector<int64_t>(11, 5), std::vector<int64_t>(12, 6)};
  const auto generated = generate(model, prompts, {.max_new_tokens = 100, .temperature = 0});
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(generated[i].size(), 12 - prompts[i].size());
    EXPECT_EQ(generated[i], greedy_without_cache(model, prompts[i], 100)) << i;
  }
}

TEST_P(GptGenerationTest, StopTokensEndTheirSequenceOnly) {
  auto model = generating_gpt(GetParam().options);
  const Prompts prompts{{1, 2}, {4, 5, 6}, {7}};
  const auto whole = generate(model, prompts, {.max_new_tokens = 8, .temperature = 0});
  const std::vector<int64_t> stops{whole[1][2], 30};
  const auto stopped =
      generate(model, prompts, {.max_new_tokens = 8, .temperature = 0, .stop_tokens = stops});
  for (size_t i = 0; i < prompts.size(); ++i) {
    auto end = std::find_first_of(whole[i].begin(), whole[i].end(), stops.begin(), stops.end());
    if (end != whole[i].end()) ++end;
    EXPECT_EQ(stopped[i], std::vector<int64_t>(whole[i].begin(), end)) << i;
  }
  EXPECT_LE(stopped[1].size(), 3U);
}

INSTANTIATE_TEST_SUITE_P(Options, GptGenerationTest, ::testing::ValuesIn(small_gpts()), name_of);

/// Probabilities of the next token, and how often it is drawn in 10,000 draws.
struct Draws {
  torch::Tensor expected;
  torch::Tensor drawn;
};

Draws draw_next_token(const GenerationOptions& options, const torch::Tensor& expected) {
  auto model = generating_gpt(small_gpt2());
  constexpr int64_t kDraws = 10'000;
  GenerationOptions one = options;
  one.max_new_tokens = 1;
  one.generator = seeded(9);
  const auto generated = generate(model, Prompts(kDraws, {3, 1}), one);
  auto counts = torch::zeros({31}, torch::kDouble);
  for (const auto& tokens : generated) counts[tokens.at(0)] += 1;
  return {.expected = expected, .drawn = counts / kDraws};
}

/// Logits of the token that draw_next_token() draws.
torch::Tensor next_token_logits() {
  auto model = generating_gpt(small_gpt2());
  model->eval();
  return model(row_of({3, 1}))[0][-1].detach().to(torch::kDouble);
}

void expect_drawn(const Draws& draws) {
  EXPECT_LT((draws.drawn - draws.expected).abs().max().item<double>(), 0.02);
  EXPECT_TRUE(draws.drawn.masked_select(draws.expected == 0).eq(0).all().item<bool>());
}

TEST(GptSamplingTest, DrawsByTheSoftmaxOfLogitsOverTheTemperature) {
  for (const double temperature : {1.0, 0.5, 2.0})
    expect_drawn(
        draw_next_token({.temperature = temperature}, (next_token_logits() / temperature).softmax(0)));
}

TEST(GptSamplingTest, TopKLeavesTheMostLikelyTokens) {
  auto logits = next_token_logits();
  const auto smallest = std::get<0>(logits.topk(4))[3];
  const auto expected = logits.masked_fill(logits < smallest, -INFINITY).softmax(0);
  EXPECT_EQ(expected.count_nonzero().item<int64_t>(), 4);
  expect_drawn(draw_next_token({.top_k = 4}, expected));
  expect_drawn(draw_next_token({.top_k = 100}, logits.softmax(0)));
}

TEST(GptSamplingTest, TopPLeavesTheFewestTokensThatReachIt) {
  const auto probabilities = next_token_logits().softmax(0);
  const auto [sorted, order] = probabilities.sort(0, /*descending=*/true);
  auto expected = torch::zeros_like(probabilities);
  double sum = 0;
  for (int64_t i = 0; sum < 0.7; ++i) {
    sum += sorted[i].item<double>();
    expected[order[i]] = sorted[i];
  }
  ASSERT_GT(expected.count_nonzero().item<int64_t>(), 1);
  ASSERT_LT(expected.count_nonzero().item<int64_t>(), 31);
  expect_drawn(draw_next_token({.top_p = 0.7}, expected / sum));
}

TEST(GptSamplingTest, TheSmallestTopPIsGreedy) {
  auto model = generating_gpt(small_llama());
  const Prompts prompts{{1, 2, 3}, {4}};
  EXPECT_EQ(generate(model, prompts, {.max_new_tokens = 6, .top_p = 1e-9}),
            generate(model, prompts, {.max_new_tokens = 6, .temperature = 0}));
  EXPECT_EQ(generate(model, prompts, {.max_new_tokens = 6, .top_k = 1}),
            generate(model, prompts, {.max_new_tokens = 6, .temperature = 0}));
}

TEST(GptSamplingTest, TheSameGeneratorStateGivesTheSameTokens) {
  auto model = generating_gpt(small_llama());
  const Prompts prompts(4, {1, 2, 3});
  const auto drawn = [&](uint64_t seed) {
    return generate(model, prompts, {.max_new_tokens = 8, .generator = seeded(seed)});
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
  const auto first = drawn(1);
  EXPECT_NE(first[0], first[1]);  // rows do not share their draws
}

TEST(GptSamplingTest, ComputesAsInEvaluationAndLeavesTheModelInTraining) {
  GptOptions options = small_gpt2();
  auto expected_model = generating_gpt(options);
  options.residual_dropout = options.attention_dropout = options.embedding_dropout = 0.5;
  auto model = generating_gpt(options);
  const Prompts prompts{{1, 2, 3}};
  EXPECT_EQ(generate(model, prompts, {.max_new_tokens = 8, .temperature = 0}),
            generate(expected_model, prompts, {.max_new_tokens = 8, .temperature = 0}));
  EXPECT_TRUE(model->is_training());
  EXPECT_TRUE(model(row_of({1, 2})).requires_grad());
}

TEST(GptSamplingTest, NothingIsGeneratedFromNothing) {
  auto model = generating_gpt(small_gpt2());
  EXPECT_THAT(generate(model, {}), SizeIs(0));
  EXPECT_THAT(generate(model, Prompts(2, {1}), {.max_new_tokens = 0}), Each(SizeIs(0)));
}

TEST(GptGenerationErrorsTest, OptionsAndPromptsAreNamed) {
  auto model = generating_gpt(small_gpt2());
  const auto refused = [&](const Prompts& prompts, const GenerationOptions& options,
                           const std::string& message) {
    EXPECT_THAT([&] { generate(model, prompts, options); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("[generate] " + message)));
  };
  refused({{1}}, {.temperature = -1}, "expected temperature to be 0 or more, but got -1");
  refused({{1}}, {.top_k = -1}, "expected top_k to be 0 or more, but got -1");
  refused({{1}}, {.top_p = 0}, "expected top_p to be above 0 and at most 1, but got 0");
  refused({{1}}, {.max_new_tokens = -1}, "expected max_new_tokens to be 0 or more, but got -1");
  refused({{1}, {}}, {}, "prompt 1: expected 1 to 12 tokens, but got 0");
  refused({std::vector<int64_t>(13, 1)}, {}, "prompt 0: expected 1 to 12 tokens, but got 13");
  refused({{1, 31}}, {}, "prompt 0: expected tokens from 0 to 30, but got 31");
}

TEST(GptCacheTest, TokensThatDoNotFitAreRefused) {
  auto model = generating_gpt(small_gpt2());
  GptCache cache(model->options(), {.batch_size = 2, .capacity = 4});
  model->next_logits(torch::zeros({2, 3}, torch::kLong), cache);
  EXPECT_THAT(
      [&] {
        model->next_logits(torch::zeros({2, 2}, torch::kLong), cache);
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("at most 4 tokens in this cache, but got 5")));
  EXPECT_EQ(cache.length(), 3);
  EXPECT_THAT(
      [&] {
        model->next_logits(torch::zeros({1, 1}, torch::kLong), cache);
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("shape [2, T] for this cache, but got [1, 1]")));
  GptCache larger(model->options(), {.capacity = 20});
  EXPECT_THAT(
      [&] {
        model->next_logits(torch::zeros({1, 13}, torch::kLong), larger);
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("at most 12 tokens, but got 13")));
  EXPECT_THAT([&] { GptCache(model->options(), {.batch_size = 2, .padding = {1}}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("padding for 2 sequences, but got 1")));
  EXPECT_THAT([&] { cache.keep_rows({2}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("rows below 2, but got 2")));
}

}  // namespace
}  // namespace lockstep
