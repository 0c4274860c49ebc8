#include "lockstep/datasets/tokens/internal/language_entropy.h"

#include <cmath>
#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

namespace lockstep {
namespace {

/// The states that differ only in the classes of subjects, kinds of brackets and persons, as one: these
/// decide which words follow, but neither how probable they are nor what comes after them.
struct StateGroup {
  LanguageState state;  // one of them
  double entropy = 0;
  struct Next {
    size_t group = 0;
    double probability = 0;
  };
  std::vector<Next> next{};
};

/// Finds the groups that can follow the first one, a document's start.
std::vector<StateGroup> find_groups(const LanguageGrammar& grammar) {
  std::vector<StateGroup> groups(1);
  std::map<std::tuple<LanguageSlot, uint8_t, uint8_t>, size_t> numbers;
  const auto number_of = [&](const LanguageState& state) {
    const auto key = std::tuple{state.slot, state.depth, state.num_items};
    const auto [place, is_new] = numbers.try_emplace(key, groups.size());
    if (is_new) groups.push_back({.state = state});
    return place->second;
  };
  numbers[{groups[0].state.slot, groups[0].state.depth, groups[0].state.num_items}] = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const LanguageState from = groups[i].state;
    const TokenChoice& choice = grammar.choice(from);
    std::map<size_t, double> next;
    for (const auto& option : choice.options()) {
      LanguageState to = from;
      grammar.advance(to, option.token);
      next[number_of(to)] += option.probability;
    }
    groups[i].entropy = choice.entropy();
    for (const auto& [group, probability] : next) groups[i].next.push_back({group, probability});
  }
  return groups;
}

struct ClauseSums {
  double num_tokens = 0;
  double entropy = 0;
};

/// The expected number of tokens and entropy of what follows a clause's subject, up to its pronoun.
ClauseSums clause_sums(const LanguageGrammar& grammar, int depth) {
  const auto& options = grammar.options();
  const double num_items = (options.smallest_count + options.largest_count) / 2.0;
  const auto entropy_at = [&](LanguageSlot slot) { return grammar.choice(slot).entropy(); };
  const double verb_to_pronoun = entropy_at(LanguageSlot::kVerb) + entropy_at(LanguageSlot::kNumber) +
                                 num_items * entropy_at(LanguageSlot::kItem);
  // Between the brackets: a preposition and a place, or a subject and what follows it.
  ClauseSums inner{.num_tokens = 2,
                   .entropy = entropy_at(LanguageSlot::kPreposition) + entropy_at(LanguageSlot::kPlace)};
  if (depth < options.max_depth) {
    const ClauseSums clause = clause_sums(grammar, depth + 1);
    inner = {.num_tokens = (1 - options.nesting) * 2 + options.nesting * (1 + clause.num_tokens),
             .entropy = entropy_at(LanguageSlot::kSubjectOrPreposition) +
                        (1 - options.nesting) * entropy_at(LanguageSlot::kPlace) +
                        options.nesting * clause.entropy};
  }
  // The brackets, verb, ending, number, items and pronoun.
  return {.num_tokens = inner.num_tokens + 6 + num_items,
          .entropy = entropy_at(LanguageSlot::kOpening) + inner.entropy + verb_to_pronoun};
}

}  // namespace

double entropy_of_first(const LanguageGrammar& grammar, int64_t num_tokens) {
  const auto groups = find_groups(grammar);
  std::vector<double> probabilities(groups.size());
  std::vector<double> next(groups.size());
  probabilities[0] = 1;
  double sum = 0;
  for (int64_t i = 0; i < num_tokens; ++i) {
    next.assign(groups.size(), 0);
    for (size_t from = 0; from < groups.size(); ++from) {
      sum += probabilities[from] * groups[from].entropy;
      for (const auto& [to, probability] : groups[from].next) next[to] += probabilities[from] * probability;
    }
    probabilities.swap(next);
  }
  return sum / static_cast<double>(num_tokens);
}

double endless_entropy(const LanguageGrammar& grammar) {
  const double end = grammar.options().end_of_text;
  const double facts = grammar.fact_share();
  const ClauseSums clause = clause_sums(grammar, 0);
  // After a sentence: the next one's first word, or the end of the text and then a first word.
  const double before = grammar.choice(LanguageSlot::kSubjectOrEnd).entropy() +
                        end * grammar.choice(LanguageSlot::kSubject).entropy();
  constexpr double kSubjectAndStop = 2;
  constexpr double kFactTokens = 4;  // with the stop
  const double of_sentence =
      (1 - facts) * clause.entropy + facts * grammar.choice(LanguageSlot::kFamilyName).entropy();
  return (before + of_sentence) /
         (end + (1 - facts) * (kSubjectAndStop + clause.num_tokens) + facts * kFactTokens);
}

}  // namespace lockstep
