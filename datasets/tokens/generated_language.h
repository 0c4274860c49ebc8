#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/datasets/tokens/generated_language_options.h"

namespace lockstep {

class LanguageGrammar;

/// Which of the texts of a generated language.
struct GeneratedSequence {
  uint64_t seed = 0;
  uint64_t index = 0;
};

/// A random language whose entropy is known, so that a language model's loss can be judged: no model can have
/// a lower expected loss than entropy(), and a perfect one has exactly this. Its words look as follows.
///
///     the monk [the bees (behind the tower) senden four hats, cups, pins, cups for them] keepeth three keys,
///     cups, maps for him.
///
/// Much of it can be told only from words far back: a verb's ending and the pronoun have the class of the
/// clause's subject, brackets match, and as many things are listed as the number says. With the default
/// options, even the best predictor that sees only the last 4 words loses more than 0.4 nats per word
/// against one that sees all. Everything that a word depends on lies within its sentence, which has 14 to 56
/// words.
///
/// With GeneratedLanguageOptions::num_names, some sentences state facts. A model must know them by heart, as
/// neither of the two names tells the town without the other:
///
///     Beric Dunfield lives in Wesbury.
///
/// The words are drawn by a machine with a stack of open clauses, and the words so far tell its state, so the
/// distribution of the next word is known, too. A text depends only on the options, the seed and its index.
/// A value: copies share the tables. Thread-safe.
///
/// Example:
///
///     GeneratedLanguage language;
///     std::vector<uint32_t> tokens(257);
///     language.draw({.seed = 1, .index = 7}, tokens);
///     std::cout << language.text(tokens) << "\nexpected loss: " << language.entropy(256) << '\n';
class GeneratedLanguage {
 public:
  /// Throws std::invalid_argument if an option is out of range.
  explicit GeneratedLanguage(const GeneratedLanguageOptions& options = {});

  const GeneratedLanguageOptions& options() const;
  uint32_t vocab_size() const;
  /// Returns the token that begins a text and separates its documents.
  static constexpr uint32_t end_of_text() { return 0; }

  /// Fills `tokens` with the beginning of a text: end_of_text(), then documents one after another, the last
  /// one cut off.
  void draw(const GeneratedSequence& sequence, std::span<uint32_t> tokens) const;

  /// Returns the expected negative log probability per token, in nats, of the `num_tokens` tokens that follow
  /// the end_of_text() at the beginning of a text: the lowest possible expected loss of a model that sees
  /// these texts from their beginning. Exact but for rounding. Throws std::invalid_argument if `num_tokens`
  /// is below 1.
  double entropy(int64_t num_tokens) const;
  /// Returns what entropy() approaches as texts get longer.
  double entropy_rate() const;

  /// Returns the distribution of the token after `context`, which begins a text as draw() does: the
  /// probability of each token of the vocabulary. Throws std::invalid_argument if `context` is empty or not
  /// possible in this language, naming the first token that is not.
  std::vector<double> probabilities(std::span<const uint32_t> context) const;
  /// Returns the log probability of each token but the first, given those before it. `tokens` is as the
  /// context of probabilities(), which says what is thrown.
  std::vector<double> log_probabilities(std::span<const uint32_t> tokens) const;

  /// Returns the tokens as a person would write them. end_of_text() becomes a new line. Throws
  /// std::invalid_argument if a token is not below vocab_size().
  std::string text(std::span<const uint32_t> tokens) const;
  /// Returns the tokens of a text that is written as text() writes it. Spaces and commas between words may be
  /// added or missing. Throws std::invalid_argument naming the place of the first word that the language does
  /// not have.
  std::vector<uint32_t> tokens(std::string_view text) const;

 private:
  std::shared_ptr<const LanguageGrammar> grammar_;
};

}  // namespace lockstep
