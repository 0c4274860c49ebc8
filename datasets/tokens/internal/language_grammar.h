#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/datasets/tokens/generated_language_options.h"
#include "lockstep/datasets/tokens/internal/token_choice.h"

namespace lockstep {

/// Kinds of tokens.
enum class WordKind : uint8_t {
  kEndOfText,
  kStop,
  kNoun,
  kPreposition,
  kPlace,
  kVerb,
  kEnding,
  kNumber,
  kItem,
  kPronoun,
  kOpening,
  kClosing,
};

struct LanguageWord {
  WordKind kind = WordKind::kEndOfText;
  /// The class of a noun, ending or pronoun, the kind of a bracket, the value of a number; else 0.
  uint8_t value = 0;
  std::string_view text;
};

/// The kind of the next token.
enum class LanguageSlot : uint8_t {
  kSubject,
  kSubjectOrEnd,  ///< after a sentence
  kOpening,
  kSubjectOrPreposition,  ///< after an opening bracket
  kPreposition,
  kPlace,
  kPhraseEnd,
  kVerb,
  kEnding,
  kNumber,
  kItem,
  kPronoun,
  kClauseEnd,
};

/// All that the next token and those after it depend on: what is next, and for each clause that is not
/// finished, the class of its subject and the kind of its brackets.
struct LanguageState {
  static constexpr int kMaxDepth = 7;

  struct Clause {
    uint8_t subject_class = 0;
    uint8_t bracket = 0;
  };

  LanguageSlot slot = LanguageSlot::kSubject;
  uint8_t depth = 0;
  uint8_t num_items = 0;  ///< that are still to come
  std::array<Clause, kMaxDepth + 1> clauses{};
};

/// The rules of the generated language, as a machine that reads or writes one token after another:
///
///     text     := document*
///     document := sentence+ end-of-text
///     sentence := clause "."
///     clause   := noun opening (preposition place | clause) closing verb ending number item+ pronoun
///
/// The ending and the pronoun have the noun's class, the closing bracket is of the opening one's kind, and
/// there are as many items as the number says.
class LanguageGrammar {
 public:
  /// Throws std::invalid_argument if an option is out of range.
  explicit LanguageGrammar(const GeneratedLanguageOptions& options);

  const GeneratedLanguageOptions& options() const { return options_; }
  /// The words by token. Token 0 is the end of the text.
  const std::vector<LanguageWord>& words() const { return words_; }

  /// Returns the distribution of the next token.
  const TokenChoice& choice(const LanguageState& state) const;
  /// Returns the distribution at a place where it depends on nothing else: not at kPhraseEnd,
  /// kEnding, kPronoun and kClauseEnd.
  const TokenChoice& choice(LanguageSlot slot) const { return choices_[static_cast<size_t>(slot)]; }
  /// Moves on by a token that the choice has.
  void advance(LanguageState& state, uint32_t token) const;

 private:
  uint32_t add_word(WordKind kind, int value, std::string_view text);

  GeneratedLanguageOptions options_;
  std::vector<LanguageWord> words_;
  std::array<TokenChoice, 13> choices_;  // by slot
  std::vector<TokenChoice> endings_;     // by class, as the next line
  std::vector<TokenChoice> pronouns_;
  std::vector<TokenChoice> closings_;  // by kind of bracket
  TokenChoice stop_;
};

}  // namespace lockstep
