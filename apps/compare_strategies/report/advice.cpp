#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "lockstep/apps/compare_strategies/report/comparison.h"

namespace lockstep::apps {
namespace {

/// Returns the indices of the rows that trained, simplest first.
std::vector<size_t> candidates(const std::vector<ComparisonRow>& rows) {
  std::vector<size_t> indices;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].failure && std::isfinite(rows[i].loss)) indices.push_back(i);
  }
  const auto complexity = [&](size_t i) {
    // A replica may have several ranks.
    const auto ranks = std::max<int64_t>(rows[i].replicas, rows[i].strategy.replicas);
    return std::tuple(num_processes(rows[i].strategy), ranks, i);
  };
  std::sort(indices.begin(), indices.end(),
            [&](size_t a, size_t b) { return complexity(a) < complexity(b); });
  return indices;
}

bool is_clearly_faster(const ComparisonRow& row, const ComparisonRow& other) {
  const auto spread = spread_of(speed_ratios(row, other));
  return spread.interval && spread.interval->lower > 1;
}

size_t choose(const std::vector<ComparisonRow>& rows, const std::vector<size_t>& simplest_first) {
  size_t chosen = simplest_first.front();
  for (const size_t i : simplest_first) {
    if (is_clearly_faster(rows[i], rows[chosen])) chosen = i;
  }
  return chosen;
}

double median_ratio(const ComparisonRow& row, const ComparisonRow& other) {
  return measurement::median(speed_ratios(row, other));
}

/// Returns the row furthest ahead of `chosen`, or `chosen` if none is ahead.
size_t furthest_ahead(const std::vector<ComparisonRow>& rows, const std::vector<size_t>& among,
                      size_t chosen) {
  size_t ahead = chosen;
  for (const size_t i : among) {
    if (median_ratio(rows[i], rows[chosen]) > median_ratio(rows[ahead], rows[chosen])) ahead = i;
  }
  return ahead;
}

std::string ratio_text(const ComparisonRow& row, const ComparisonRow& other, const std::string& examples) {
  const auto spread = spread_of(speed_ratios(row, other));
  std::string text =
      fmt::format("{:.2f} times as many {} a second as {}", spread.median, examples, other.strategy.label);
  if (spread.interval)
    text += fmt::format(" (95 % interval {:.2f} to {:.2f})", spread.interval->lower, spread.interval->upper);
  return text;
}

/// Returns whether several strategies trained, but in too few rounds to tell speed from noise.
bool has_too_few_rounds(const std::vector<ComparisonRow>& rows, const std::vector<size_t>& among) {
  return among.size() > 1 && !rows[among.front()].examples_per_second.interval;
}

std::string too_few_rounds_text(const std::vector<ComparisonRow>& rows,
                                const std::vector<size_t>& simplest_first, const std::string& examples) {
  const ComparisonRow& simplest = rows[simplest_first.front()];
  const ComparisonRow& ahead = rows[furthest_ahead(rows, simplest_first, simplest_first.front())];
  const size_t rounds = simplest.examples_per_second.rounds.size();
  const std::string seen = &ahead == &simplest
                               ? "none trained faster than " + simplest.strategy.label + ", the simplest"
                               : ahead.strategy.label + " trained " + ratio_text(ahead, simplest, examples);
  return fmt::format(
      "Too few rounds for advice: in {} {} {}, but that may be noise. --rounds {} or more show it.", rounds,
      rounds == 1 ? "round" : "rounds", seen, kFewestRoundsForAnInterval);
}

}  // namespace

int advised_strategy(const std::vector<ComparisonRow>& rows) {
  const auto simplest_first = candidates(rows);
  if (simplest_first.empty() || has_too_few_rounds(rows, simplest_first)) return -1;
  return static_cast<int>(choose(rows, simplest_first));
}

std::string advice(const std::vector<ComparisonRow>& rows, const std::string& examples) {
  const auto simplest_first = candidates(rows);
  if (simplest_first.empty()) return "No strategy trained to the end, so none can be advised.";
  if (has_too_few_rounds(rows, simplest_first)) return too_few_rounds_text(rows, simplest_first, examples);
  const size_t index = choose(rows, simplest_first);
  const ComparisonRow& simplest = rows[simplest_first.front()];
  const ComparisonRow& chosen = rows[index];
  const ComparisonRow& ahead = rows[furthest_ahead(rows, simplest_first, index)];
  const std::string use = "Use " + chosen.strategy.label + " here: ";
  if (simplest_first.size() == 1) return use + "no other strategy trained to the end.";
  const std::string why = &chosen == &simplest
                              ? "it is the simplest"
                              : "it trained " + ratio_text(chosen, simplest, examples) + ", the simplest";
  if (&ahead == &chosen) return use + why + ", and none was faster in most rounds.";
  return use + why + ", and none is clearly faster: " + ahead.strategy.label + " trained " +
         ratio_text(ahead, chosen, examples) + ".";
}

}  // namespace lockstep::apps
