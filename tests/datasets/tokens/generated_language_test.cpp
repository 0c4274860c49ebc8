#include "lockstep/datasets/tokens/generated_language.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Tokens = std::vector<uint32_t>;

Tokens drawn(const GeneratedLanguage& language, const GeneratedSequence& sequence, size_t length) {
  Tokens tokens(length);
  language.draw(sequence, tokens);
  return tokens;
}

/// Two words of each kind at most, so that all texts can be listed. The options differ from each other.
constexpr GeneratedLanguageOptions kSmall{.num_classes = 2,
                                          .nouns_per_class = 1,
                                          .num_prepositions = 1,
                                          .num_places = 2,
                                          .num_verbs = 1,
                                          .num_items = 2,
                                          .smallest_count = 1,
                                          .largest_count = 2,
                                          .num_brackets = 2,
                                          .max_depth = 1,
                                          .nesting = 0.3,
                                          .end_of_text = 0.4};

/// The same with four persons.
constexpr GeneratedLanguageOptions with_facts(GeneratedLanguageOptions options, double fact_share) {
  options.num_names = 2;
  options.fact_share = fact_share;
  return options;
}

/// Adds up the probability and the entropy of all texts that begin with `tokens` and have `left` more tokens.
struct Listing {
  const GeneratedLanguage& language;
  double probability = 0;
  double entropy = 0;
  size_t num_texts = 0;

  void list(Tokens& tokens, size_t left, double probability_so_far) {
    if (left == 0) {
      probability += probability_so_far;
      entropy -= probability_so_far * std::log(probability_so_far);
      ++num_texts;
      return;
    }
    const auto next = language.probabilities(tokens);
    for (uint32_t token = 0; token < next.size(); ++token) {
      if (next[token] == 0) continue;
      tokens.push_back(token);
      list(tokens, left - 1, probability_so_far * next[token]);
      tokens.pop_back();
    }
  }
};

TEST(GeneratedLanguage, HasTheEntropyOfAllItsTexts) {
  for (const auto& options : {kSmall, with_facts(kSmall, 0.3), with_facts(kSmall, 1)}) {
    const GeneratedLanguage language(options);
    for (const size_t length : {1U, 2U, 5U, 12U, 17U}) {
      Listing listing{language};
      Tokens tokens{GeneratedLanguage::end_of_text()};
      listing.list(tokens, length, 1);
      EXPECT_NEAR(listing.probability, 1, 1e-9);
      EXPECT_NEAR(listing.entropy / static_cast<double>(length),
                  language.entropy(static_cast<int64_t>(length)), 1e-9)
          << length << " tokens, " << listing.num_texts << " texts";
    }
  }
}

TEST(GeneratedLanguage, HasTheEntropyOfItsLogProbabilities) {
  const GeneratedLanguage language;
  constexpr size_t kTexts = 20'000;
  constexpr int64_t kTokens = 256;
  double sum = 0;
  double sum_of_squares = 0;
  for (size_t i = 0; i < kTexts; ++i) {
    double of_text = 0;
    for (const double log : language.log_probabilities(drawn(language, {.seed = 3, .index = i}, kTokens + 1)))
      of_text -= log / kTokens;
    sum += of_text;
    sum_of_squares += of_text * of_text;
  }
  const double mean = sum / kTexts;
  const double deviation = std::sqrt((sum_of_squares / kTexts - mean * mean) / kTexts);
  EXPECT_LT(deviation, 0.0007);
  EXPECT_NEAR(mean, language.entropy(kTokens), 4 * deviation);
}

TEST(GeneratedLanguage, ApproachesTheEntropyRateOfItsFormula) {
  GeneratedLanguageOptions flat;
  flat.max_depth = 0;
  GeneratedLanguageOptions deep;
  deep.max_depth = 7;
  deep.nesting = 0.8;
  for (const auto& options :
       {GeneratedLanguageOptions{}, kSmall, flat, deep, with_facts({}, 0.6), with_facts(deep, 1)}) {
    const GeneratedLanguage language(options);
    constexpr int64_t kFar = 20'000;
    // The entropy of the tokens between two far places, over which all lengths of sentences are mixed.
    constexpr int64_t kBetween = 20'000;
    const double both = static_cast<double>(kFar + kBetween) * language.entropy(kFar + kBetween);
    EXPECT_NEAR((both - kFar * language.entropy(kFar)) / kBetween, language.entropy_rate(), 1e-6);
  }
}

TEST(GeneratedLanguage, DrawsTokensWithTheirProbabilities) {
  const GeneratedLanguage language(kSmall);
  // After each context, the next token's counts are as expected within 5 standard deviations.
  std::map<Tokens, std::map<uint32_t, double>> counts;
  for (uint64_t i = 0; i < 100'000; ++i) {
    const Tokens tokens = drawn(language, {.seed = 5, .index = i}, 6);
    for (size_t length = 1; length < tokens.size(); ++length)
      ++counts[Tokens(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(length))][tokens[length]];
  }
  for (const auto& [context, next] : counts) {
    double count = 0;
    for (const auto& [token, times] : next) count += times;
    const auto expected = language.probabilities(context);
    for (const auto& [token, times] : next)
      EXPECT_NEAR(times, count * expected[token],
                  5 * std::sqrt(count * expected[token] * (1 - expected[token])) + 1e-9);
  }
  EXPECT_GT(counts.size(), 20U);
}

TEST(GeneratedLanguage, ATextDependsOnTheSeedAndItsIndexAlone) {
  const GeneratedLanguage language;
  const auto text = drawn(language, {.seed = 1, .index = 2}, 100);
  EXPECT_EQ(text, drawn(GeneratedLanguage(), {.seed = 1, .index = 2}, 100));
  EXPECT_NE(text, drawn(language, {.seed = 1, .index = 3}, 100));
  EXPECT_NE(text, drawn(language, {.seed = 2, .index = 2}, 100));
  EXPECT_NE(text, drawn(language, {.seed = 2, .index = 1}, 100));
  // A shorter text is the beginning of a longer one.
  const auto longer = drawn(language, {.seed = 1, .index = 2}, 1000);
  EXPECT_TRUE(std::equal(text.begin(), text.end(), longer.begin()));
}

/// Checks a sentence by its words as a reader would, with no knowledge of tokens: returns the rest of the
/// text after a clause.
std::string_view read_clause(std::string_view text) {
  static const std::map<std::string, std::string> kEndingOf = {{"for him", "eth"},  {"for her", "est"},
                                                               {"for them", "en"},  {"for us", "s"},
                                                               {"for thee", "ing"}, {"for me", "ed"}};
  static const std::map<std::string, std::string> kPronounOf = {
      {"king", "for him"},    {"monk", "for him"},   {"miller", "for him"}, {"baker", "for him"},
      {"queen", "for her"},   {"nun", "for her"},    {"weaver", "for her"}, {"witch", "for her"},
      {"wolves", "for them"}, {"geese", "for them"}, {"bees", "for them"},  {"crows", "for them"},
      {"sun", "for us"},      {"wind", "for us"},    {"rain", "for us"},    {"moon", "for us"},
      {"ship", "for thee"},   {"cart", "for thee"},  {"mule", "for thee"},  {"ox", "for thee"},
      {"oak", "for me"},      {"rose", "for me"},    {"fern", "for me"},    {"pine", "for me"}};
  static const std::vector<std::string> kNumbers = {"zero", "one", "two", "three", "four", "five", "six"};
  static const std::string kOpen = "([{<";
  static const std::string kClose = ")]}>";
  const auto take = [&](size_t count) {
    const std::string_view taken = text.substr(0, count);
    text.remove_prefix(std::min(count, text.size()));
    return std::string(taken);
  };
  EXPECT_EQ(take(4), "the ");
  const std::string noun = take(text.find(' '));
  EXPECT_TRUE(kPronounOf.contains(noun)) << noun;
  const std::string pronoun = kPronounOf.at(noun);
  EXPECT_EQ(take(1), " ");
  const size_t kind = kOpen.find(take(1));
  EXPECT_LT(kind, kOpen.size());
  if (text.starts_with("the ")) {
    text = read_clause(text);
  } else {
    text.remove_prefix(text.find(kClose[kind]));  // a preposition and a place
  }
  EXPECT_EQ(take(1), kClose.substr(kind, 1));
  EXPECT_EQ(take(1), " ");
  const std::string verb = take(text.find(' '));
  EXPECT_TRUE(verb.ends_with(kEndingOf.at(pronoun))) << verb << " of " << noun;
  EXPECT_EQ(take(1), " ");
  const std::string number = take(text.find(' '));
  const size_t end = text.find(" for ");
  const std::string items = take(end);
  EXPECT_EQ(kNumbers.at(static_cast<size_t>(std::count(items.begin(), items.end(), ',')) + 1), number)
      << items;
  EXPECT_EQ(take(pronoun.size() + 1), " " + pronoun) << noun;
  return text;
}

TEST(GeneratedLanguage, WritesSentencesThatAgreeAndCountAndMatchTheirBrackets) {
  const GeneratedLanguage language;
  size_t num_sentences = 0;
  for (uint64_t i = 0; i < 50; ++i) {
    std::string text = language.text(drawn(language, {.seed = 6, .index = i}, 600));
    text.resize(text.rfind('.') + 1);  // whole sentences
    std::string_view rest = text;
    while (!rest.empty()) {
      if (rest[0] == '\n' || rest[0] == ' ') {
        rest.remove_prefix(1);
        continue;
      }
      rest = read_clause(rest);
      ASSERT_TRUE(rest.starts_with(".")) << text;
      rest.remove_prefix(1);
      ++num_sentences;
    }
  }
  EXPECT_GT(num_sentences, 500U);
}

TEST(GeneratedLanguage, ReadsTheTextThatItWrites) {
  for (const auto& options :
       {GeneratedLanguageOptions{}, kSmall, GeneratedLanguageOptions{.num_names = 128, .fact_share = 0.9}}) {
    const GeneratedLanguage language(options);
    for (uint64_t i = 0; i < 100; ++i) {
      const auto tokens = drawn(language, {.seed = 7, .index = i}, 300);
      EXPECT_EQ(language.tokens(language.text(tokens)), tokens);
    }
  }
  const GeneratedLanguage language;
  EXPECT_EQ(language.text(language.tokens("  the king ,(near   the old mill)keep")),
            "the king (near the old mill) keep");
  EXPECT_THAT([&] { language.tokens("the king (near the hat"); },
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("expected a word of the language at character 16, but got 'the hat'")));
  EXPECT_THROW(language.tokens("kings"), std::invalid_argument);
  EXPECT_THROW(language.tokens("the king\xFF"), std::invalid_argument);
}

TEST(GeneratedLanguage, WritesWhateverAModelMakes) {
  const GeneratedLanguage language;
  Tokens all(language.vocab_size());
  for (uint32_t token = 0; token < all.size(); ++token) all[token] = all.size() - 1 - token;
  EXPECT_FALSE(language.text(all).empty());
  EXPECT_EQ(language.text({}), "");
  EXPECT_THAT([&] { (void)language.text(Tokens{78}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("expected tokens below 78, but got 78")));
}

TEST(GeneratedLanguage, NamesTheFirstTokenThatIsNotPossible) {
  const GeneratedLanguage language;
  auto tokens = drawn(language, {.seed = 1, .index = 1}, 50);
  EXPECT_EQ(language.log_probabilities(tokens).size(), 49U);
  EXPECT_THAT(
      [&] { (void)language.probabilities({}); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("begin with the end-of-text token 0, but got none")));
  EXPECT_THROW((void)language.probabilities(Tokens{1}), std::invalid_argument);
  tokens[30] = 0;
  EXPECT_THAT([&] { (void)language.probabilities(tokens); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("token 0 at position 30 is not possible")));
  tokens[1] = 4000;
  EXPECT_THAT([&] { (void)language.log_probabilities(tokens); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("token 4000 at position 1 is not possible")));
}

TEST(GeneratedLanguage, RefusesOptionsOutOfRange) {
  const auto expect_refused = [](const GeneratedLanguageOptions& options, const std::string& message) {
    EXPECT_THAT([&] { GeneratedLanguage language(options); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(message)));
  };
  expect_refused({.num_classes = 0}, "num_classes: expected 1 to 6, but got 0");
  expect_refused({.nouns_per_class = 5}, "nouns_per_class: expected 1 to 4, but got 5");
  expect_refused({.smallest_count = 5, .largest_count = 4}, "largest_count: expected 5 to 9, but got 4");
  expect_refused({.max_depth = 8}, "max_depth: expected 0 to 7, but got 8");
  expect_refused({.nesting = 1}, "nesting: expected at least 0 and below 1, but got 1");
  expect_refused({.nesting = std::numeric_limits<double>::quiet_NaN()}, "nesting");
  expect_refused({.end_of_text = 0}, "end_of_text: expected above 0, at most 1, but got 0");
  expect_refused({.num_names = 129}, "num_names: expected 0 to 128, but got 129");
  expect_refused({.fact_share = 0}, "fact_share: expected above 0, at most 1, but got 0");
  expect_refused({.fact_share = 1.1}, "fact_share");
  EXPECT_THROW((void)GeneratedLanguage().entropy(0), std::invalid_argument);
  EXPECT_NO_THROW(GeneratedLanguage({.nesting = 0, .end_of_text = 1}));
}

/// Returns the entropy, in nats, of what was counted.
double entropy_of_counts(const std::unordered_map<uint64_t, int64_t>& counts, double total) {
  double sum = 0;
  for (const auto& [tokens, count] : counts) {
    const double share = static_cast<double>(count) / total;
    sum -= share * std::log(share);
  }
  return sum;
}

// The conditional entropy of a token given one or four before it, by counting. Counts make it too low, never
// too high, so a predictor with this context loses at least that much. Which preposition, place, verb or item
// is drawn, and which noun of its class, tells nothing about the tokens after it. So with one of each, the
// loss is as far above the entropy, and there are few enough contexts to count.
TEST(GeneratedLanguage, CannotBePredictedFromAFewTokens) {
  const GeneratedLanguage language(
      {.nouns_per_class = 1, .num_prepositions = 1, .num_places = 1, .num_verbs = 1, .num_items = 1});
  for (const size_t num_before : {1U, 4U}) {
    std::unordered_map<uint64_t, int64_t> contexts;
    std::unordered_map<uint64_t, int64_t> ngrams;
    double total = 0;
    for (uint64_t i = 0; i < 4000; ++i) {
      const auto tokens = drawn(language, {.seed = 8, .index = i}, 257);
      for (size_t at = 1; at < tokens.size(); ++at) {
        uint64_t context = 1;
        for (size_t before = at - std::min(at, num_before); before < at; ++before)
          context = context * 64 + tokens[before];
        ++contexts[context];
        ++ngrams[context * 64 + tokens[at]];
        ++total;
      }
    }
    const double entropy = entropy_of_counts(ngrams, total) - entropy_of_counts(contexts, total);
    EXPECT_GT(entropy, language.entropy(256) + 0.4) << num_before;
  }
}

// Recorded before the language could have facts: whoever compares losses with those of earlier versions needs
// the same texts.
TEST(GeneratedLanguage, WithoutFactsHasTheTextsOfEarlierVersions) {
  const GeneratedLanguage language;
  uint64_t hash = 1469598103934665603U;  // FNV-1a, of tokens in place of bytes
  for (uint64_t index = 0; index < 100; ++index)
    for (const uint32_t token : drawn(language, {.seed = 1, .index = index}, 257))
      hash = (hash ^ token) * 1099511628211U;
  EXPECT_EQ(hash, 13773384873017044638U);
  EXPECT_EQ(GeneratedLanguage({.fact_share = 0.9}).vocab_size(), 78U);
}

}  // namespace
}  // namespace lockstep
