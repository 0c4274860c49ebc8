#include "lockstep/datasets/tokens/generated_language.h"

#include <cmath>
#include <stdexcept>

#include "lockstep/datasets/tokens/internal/language_entropy.h"
#include "lockstep/datasets/tokens/internal/language_grammar.h"
#include "lockstep/datasets/tokens/internal/language_text.h"
#include "lockstep/datasets/tokens/internal/text_random.h"

namespace lockstep {
namespace {

/// Calls `visit(choice, token)` with each token but the first and the choice that it comes from. Returns the
/// state after the last one.
template <typename Visit>
LanguageState follow(const LanguageGrammar& grammar, std::span<const uint32_t> tokens, const Visit& visit) {
  if (tokens.empty() || tokens[0] != GeneratedLanguage::end_of_text())
    throw std::invalid_argument(
        "[GeneratedLanguage] expected tokens that begin with the end-of-text token " +
        std::to_string(GeneratedLanguage::end_of_text()) +
        (tokens.empty() ? ", but got none" : ", but got " + std::to_string(tokens[0])));
  LanguageState state;
  for (size_t i = 1; i < tokens.size(); ++i) {
    const TokenChoice& choice = grammar.choice(state);
    if (choice.probability(tokens[i]) == 0)
      throw std::invalid_argument("[GeneratedLanguage] token " + std::to_string(tokens[i]) + " at position " +
                                  std::to_string(i) +
                                  " is not possible in this language after the tokens before it");
    visit(choice, tokens[i]);
    grammar.advance(state, tokens[i]);
  }
  return state;
}

}  // namespace

GeneratedLanguage::GeneratedLanguage(const GeneratedLanguageOptions& options)
    : grammar_(std::make_shared<const LanguageGrammar>(options)) {}

const GeneratedLanguageOptions& GeneratedLanguage::options() const {
  return grammar_->options();
}

uint32_t GeneratedLanguage::vocab_size() const {
  return static_cast<uint32_t>(grammar_->words().size());
}

void GeneratedLanguage::draw(const GeneratedSequence& sequence, std::span<uint32_t> tokens) const {
  if (tokens.empty()) return;
  tokens[0] = end_of_text();
  TextRandom random(sequence.seed, sequence.index);
  LanguageState state;
  for (uint32_t& token : tokens.subspan(1)) {
    token = grammar_->choice(state).drawn(random());
    grammar_->advance(state, token);
  }
}

double GeneratedLanguage::entropy(int64_t num_tokens) const {
  if (num_tokens < 1)
    throw std::invalid_argument("[GeneratedLanguage] entropy: expected 1 token or more, but got " +
                                std::to_string(num_tokens));
  return entropy_of_first(*grammar_, num_tokens);
}

double GeneratedLanguage::entropy_rate() const {
  return endless_entropy(*grammar_);
}

std::vector<double> GeneratedLanguage::probabilities(std::span<const uint32_t> context) const {
  const LanguageState state = follow(*grammar_, context, [](const TokenChoice&, uint32_t) {});
  std::vector<double> probabilities(grammar_->words().size());
  for (const auto& option : grammar_->choice(state).options())
    probabilities[option.token] = option.probability;
  return probabilities;
}

std::vector<double> GeneratedLanguage::log_probabilities(std::span<const uint32_t> tokens) const {
  std::vector<double> logs;
  logs.reserve(tokens.size());
  follow(*grammar_, tokens, [&](const TokenChoice& choice, uint32_t token) {
    logs.push_back(std::log(choice.probability(token)));
  });
  return logs;
}

std::string GeneratedLanguage::text(std::span<const uint32_t> tokens) const {
  return language_text(grammar_->words(), tokens);
}

std::vector<uint32_t> GeneratedLanguage::tokens(std::string_view text) const {
  return language_tokens(grammar_->words(), text);
}

}  // namespace lockstep
