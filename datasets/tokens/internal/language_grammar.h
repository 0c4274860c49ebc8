#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
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
  kGivenName,
  kFamilyName,
  kTown,
};

struct LanguageWord {
  WordKind kind = WordKind::kEndOfText;
  /// The class of a noun, ending or pronoun, the kind of a bracket, the value or place of a number or name;
  /// else 0.
  uint8_t value = 0;
  std::string text;
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
  kFamilyName,
  kTown,
};

/// All that the next token and those after it depend on: what is next, for each clause that is not finished,
/// the class of its subject and the kind of its brackets, and the person of a fact.
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
  uint16_t person = 0;  ///< see LanguageGrammar
};

/// The rules of the generated language, as a machine that reads or writes one token after another:
///
///     text     := document*
///     document := sentence+ end-of-text
///     sentence := (clause | fact) "."
///     fact     := given-name family-name town
///     clause   := noun opening (preposition place | clause) closing verb ending number item+ pronoun
///
/// The ending and the pronoun have the noun's class, the closing bracket is of the opening one's kind, and
/// there are as many items as the number says. A fact's town is that of the person with these names, whose
/// number is that of the given name times the number of names plus that of the family name. The towns of all
/// persons are drawn once, from a fixed seed.
class LanguageGrammar {
 public:
  /// Throws std::invalid_argument if an option is out of range.
  explicit LanguageGrammar(const GeneratedLanguageOptions& options);

  const GeneratedLanguageOptions& options() const { return options_; }
  /// The words by token. Token 0 is the end of the text.
  const std::vector<LanguageWord>& words() const { return words_; }

  /// Returns the distribution of the next token.
  const TokenChoice& choice(const LanguageState& state) const;
  /// Returns the distribution at a place where it depends on nothing else: not at kPhraseEnd, kEnding,
  /// kPronoun, kClauseEnd and kTown. Empty if the language has no sentences with such a place.
  const TokenChoice& choice(LanguageSlot slot) const { return choices_[static_cast<size_t>(slot)]; }
  /// Moves on by a token that the choice has.
  void advance(LanguageState& state, uint32_t token) const;
  /// Returns the probability that a sentence states a fact.
  double fact_share() const { return options_.num_names == 0 ? 0 : options_.fact_share; }

 private:
  uint32_t add_word(WordKind kind, int value, std::string_view text);
  std::vector<TokenWeight> add_words(WordKind kind, const std::string_view* texts, int count);
  TokenChoice& choice_at(LanguageSlot slot) { return choices_[static_cast<size_t>(slot)]; }
  std::vector<TokenWeight> add_nouns();
  void add_clauses(const std::vector<TokenWeight>& nouns);
  std::vector<TokenWeight> add_facts();

  GeneratedLanguageOptions options_;
  std::vector<LanguageWord> words_;
  std::array<TokenChoice, 15> choices_;  // by slot
  std::vector<TokenChoice> endings_;     // by class, as the next line
  std::vector<TokenChoice> pronouns_;
  std::vector<TokenChoice> closings_;      // by kind of bracket
  std::vector<TokenChoice> towns_;         // by town
  std::vector<uint8_t> towns_of_persons_;  // by person
  TokenChoice stop_;
};

}  // namespace lockstep
