#include "lockstep/datasets/tokens/internal/language_grammar.h"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "lockstep/datasets/tokens/internal/language_names.h"
#include "lockstep/datasets/tokens/internal/language_words.h"
#include "lockstep/datasets/tokens/internal/text_random.h"

namespace lockstep {
namespace {

/// Of the towns of persons.
constexpr uint64_t kFactSeed = 1;

struct OptionRange {
  const char* name;
  int value;
  int least;
  int most;
};

void check_ranges(const GeneratedLanguageOptions& options) {
  for (const OptionRange& range : {OptionRange{"num_classes", options.num_classes, 1, 6},
                                   {"nouns_per_class", options.nouns_per_class, 1, 4},
                                   {"num_prepositions", options.num_prepositions, 1, 4},
                                   {"num_places", options.num_places, 1, 8},
                                   {"num_verbs", options.num_verbs, 1, 8},
                                   {"num_items", options.num_items, 1, 8},
                                   {"smallest_count", options.smallest_count, 1, 9},
                                   {"largest_count", options.largest_count, options.smallest_count, 9},
                                   {"num_brackets", options.num_brackets, 1, 4},
                                   {"max_depth", options.max_depth, 0, LanguageState::kMaxDepth},
                                   {"num_names", options.num_names, 0, kMostNames}}) {
    if (range.value < range.least || range.value > range.most)
      throw std::invalid_argument("[GeneratedLanguage] " + std::string(range.name) + ": expected " +
                                  std::to_string(range.least) + " to " + std::to_string(range.most) +
                                  ", but got " + std::to_string(range.value));
  }
  // Written so that NaN is out of range.
  if (!(options.nesting >= 0 && options.nesting < 1))
    throw std::invalid_argument("[GeneratedLanguage] nesting: expected at least 0 and below 1, but got " +
                                std::to_string(options.nesting));
  if (!(options.end_of_text > 0 && options.end_of_text <= 1))
    throw std::invalid_argument("[GeneratedLanguage] end_of_text: expected above 0, at most 1, but got " +
                                std::to_string(options.end_of_text));
  if (!(options.fact_share > 0 && options.fact_share <= 1))
    throw std::invalid_argument("[GeneratedLanguage] fact_share: expected above 0, at most 1, but got " +
                                std::to_string(options.fact_share));
}

/// The first words of a kind are more frequent. Division gives the same bits on every machine.
double frequency(int rank) {
  return 1.0 / (rank + 2);
}

/// Adds words to a choice with a share of the whole.
void append_scaled(std::vector<TokenWeight>& to, const std::vector<TokenWeight>& words, double share) {
  double sum = 0;
  for (const auto& word : words) sum += word.weight;
  if (share > 0)
    for (const auto& word : words) to.push_back({word.token, share * word.weight / sum});
}

}  // namespace

LanguageGrammar::LanguageGrammar(const GeneratedLanguageOptions& options) : options_(options) {
  check_ranges(options);
  const uint32_t end = add_word(WordKind::kEndOfText, 0, "\n");
  stop_ = TokenChoice({{add_word(WordKind::kStop, 0, "."), 1}});
  std::vector<TokenWeight> beginnings;  // of sentences
  if (fact_share() < 1) {
    beginnings = add_nouns();
    add_clauses(beginnings);
  }
  if (fact_share() > 0) {
    std::vector<TokenWeight> with_facts;
    append_scaled(with_facts, beginnings, 1 - fact_share());
    append_scaled(with_facts, add_facts(), fact_share());
    beginnings = std::move(with_facts);
  }
  choice_at(LanguageSlot::kSubject) = TokenChoice(beginnings);
  std::vector<TokenWeight> beginnings_or_end{{end, options.end_of_text}};
  append_scaled(beginnings_or_end, beginnings, 1 - options.end_of_text);
  choice_at(LanguageSlot::kSubjectOrEnd) = TokenChoice(beginnings_or_end);
}

std::vector<TokenWeight> LanguageGrammar::add_words(WordKind kind, const std::string_view* texts, int count) {
  std::vector<TokenWeight> words;
  words.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) words.push_back({add_word(kind, 0, texts[i]), frequency(i)});
  return words;
}

/// Adds the words that depend on the class of a subject. Returns the subjects.
std::vector<TokenWeight> LanguageGrammar::add_nouns() {
  std::vector<TokenWeight> nouns;
  for (int of_class = 0; of_class < options_.num_classes; ++of_class) {
    for (int i = 0; i < options_.nouns_per_class; ++i)
      nouns.push_back({add_word(WordKind::kNoun, of_class, kNouns[of_class][i]), frequency(i)});
    endings_.push_back(TokenChoice({{add_word(WordKind::kEnding, of_class, kEndings[of_class]), 1}}));
    pronouns_.push_back(TokenChoice({{add_word(WordKind::kPronoun, of_class, kPronouns[of_class]), 1}}));
  }
  return nouns;
}

/// Adds what follows the subject of a clause.
void LanguageGrammar::add_clauses(const std::vector<TokenWeight>& nouns) {
  std::vector<TokenWeight> openings;
  for (int i = 0; i < options_.num_brackets; ++i) {
    openings.push_back({add_word(WordKind::kOpening, i, kOpening[i]), 1});
    closings_.push_back(TokenChoice({{add_word(WordKind::kClosing, i, kClosing[i]), 1}}));
  }
  choice_at(LanguageSlot::kOpening) = TokenChoice(openings);
  const auto prepositions = add_words(WordKind::kPreposition, kPrepositions, options_.num_prepositions);
  choice_at(LanguageSlot::kPreposition) = TokenChoice(prepositions);
  std::vector<TokenWeight> nouns_or_prepositions;
  append_scaled(nouns_or_prepositions, nouns, options_.nesting);
  append_scaled(nouns_or_prepositions, prepositions, 1 - options_.nesting);
  choice_at(LanguageSlot::kSubjectOrPreposition) = TokenChoice(nouns_or_prepositions);
  choice_at(LanguageSlot::kPlace) = TokenChoice(add_words(WordKind::kPlace, kPlaces, options_.num_places));
  choice_at(LanguageSlot::kVerb) = TokenChoice(add_words(WordKind::kVerb, kVerbs, options_.num_verbs));
  std::vector<TokenWeight> numbers;
  for (int i = options_.smallest_count; i <= options_.largest_count; ++i)
    numbers.push_back({add_word(WordKind::kNumber, i, kNumbers[i - 1]), 1});
  choice_at(LanguageSlot::kNumber) = TokenChoice(numbers);
  choice_at(LanguageSlot::kItem) = TokenChoice(add_words(WordKind::kItem, kItems, options_.num_items));
}

/// Adds persons and their towns. Returns the given names.
std::vector<TokenWeight> LanguageGrammar::add_facts() {
  const int num_names = options_.num_names;
  const auto count = static_cast<size_t>(num_names);
  std::vector<TokenWeight> given_names;
  given_names.reserve(count);
  for (int i = 0; i < num_names; ++i)
    given_names.push_back({add_word(WordKind::kGivenName, i, given_name(i)), 1});
  std::vector<TokenWeight> family_names;
  family_names.reserve(count);
  for (int i = 0; i < num_names; ++i)
    family_names.push_back({add_word(WordKind::kFamilyName, i, family_name(i)), 1});
  choice_at(LanguageSlot::kFamilyName) = TokenChoice(family_names);
  std::vector<TokenWeight> towns;
  for (int i = 0; i < num_names; ++i) {
    towns.push_back({add_word(WordKind::kTown, i, town_name(i)), 1});
    towns_.push_back(TokenChoice({towns.back()}));
  }
  const TokenChoice any_town(towns);
  TextRandom random(kFactSeed, static_cast<uint64_t>(num_names));
  for (int person = 0; person < num_names * num_names; ++person)
    towns_of_persons_.push_back(words_[any_town.drawn(random())].value);
  return given_names;
}

uint32_t LanguageGrammar::add_word(WordKind kind, int value, std::string_view text) {
  words_.push_back({kind, static_cast<uint8_t>(value), std::string(text)});
  return static_cast<uint32_t>(words_.size() - 1);
}

const TokenChoice& LanguageGrammar::choice(const LanguageState& state) const {
  const auto& clause = state.clauses[state.depth];
  switch (state.slot) {
    case LanguageSlot::kPhraseEnd:
      return closings_[clause.bracket];
    case LanguageSlot::kEnding:
      return endings_[clause.subject_class];
    case LanguageSlot::kPronoun:
      return pronouns_[clause.subject_class];
    case LanguageSlot::kClauseEnd:
      return state.depth == 0 ? stop_ : closings_[state.clauses[state.depth - 1U].bracket];
    case LanguageSlot::kTown:
      return towns_[towns_of_persons_[state.person]];
    default:
      return choice(state.slot);
  }
}

void LanguageGrammar::advance(LanguageState& state, uint32_t token) const {
  const LanguageWord& word = words_[token];
  switch (word.kind) {
    case WordKind::kEndOfText:
      state.slot = LanguageSlot::kSubject;
      break;
    case WordKind::kStop:
      state.slot = LanguageSlot::kSubjectOrEnd;
      break;
    case WordKind::kNoun:
      if (state.slot == LanguageSlot::kSubjectOrPreposition) ++state.depth;
      state.clauses[state.depth].subject_class = word.value;
      state.slot = LanguageSlot::kOpening;
      break;
    case WordKind::kOpening:
      state.clauses[state.depth].bracket = word.value;
      state.slot =
          state.depth < options_.max_depth ? LanguageSlot::kSubjectOrPreposition : LanguageSlot::kPreposition;
      break;
    case WordKind::kPreposition:
      state.slot = LanguageSlot::kPlace;
      break;
    case WordKind::kPlace:
      state.slot = LanguageSlot::kPhraseEnd;
      break;
    case WordKind::kClosing:
      if (state.slot == LanguageSlot::kClauseEnd) --state.depth;
      state.slot = LanguageSlot::kVerb;
      break;
    case WordKind::kVerb:
      state.slot = LanguageSlot::kEnding;
      break;
    case WordKind::kEnding:
      state.slot = LanguageSlot::kNumber;
      break;
    case WordKind::kNumber:
      state.num_items = word.value;
      state.slot = LanguageSlot::kItem;
      break;
    case WordKind::kItem:
      if (--state.num_items == 0) state.slot = LanguageSlot::kPronoun;
      break;
    case WordKind::kPronoun:
    case WordKind::kTown:
      state.slot = LanguageSlot::kClauseEnd;
      break;
    case WordKind::kGivenName:
      state.person = static_cast<uint16_t>(word.value * options_.num_names);
      state.slot = LanguageSlot::kFamilyName;
      break;
    case WordKind::kFamilyName:
      state.person = static_cast<uint16_t>(state.person + word.value);
      state.slot = LanguageSlot::kTown;
      break;
  }
}

}  // namespace lockstep
