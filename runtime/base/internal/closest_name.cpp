#include "lockstep/runtime/base/internal/closest_name.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace lockstep {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// Returns the optimal string alignment distance.
size_t edits(const std::string& from, const std::string& to) {
  std::vector<std::vector<size_t>> cost(from.size() + 1, std::vector<size_t>(to.size() + 1));
  for (size_t i = 0; i <= from.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= to.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t change = from[i - 1] == to[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[from.size()][to.size()];
}

}  // namespace

std::optional<std::string> closest_name(std::string_view given, const std::vector<std::string>& names) {
  constexpr size_t kShortestPart = 3;
  const std::string typed = lower(given);
  std::optional<std::string> closest;
  std::pair<size_t, size_t> fewest;  // a name's beginning counts as one edit; then the real distance
  for (const auto& name : names) {
    const std::string candidate = lower(name);
    const size_t distance = edits(typed, candidate);
    const bool is_part = typed.size() >= kShortestPart && candidate.starts_with(typed);
    if (!is_part && distance > std::max<size_t>(1, candidate.size() / 3)) continue;
    const std::pair rank(is_part ? std::min<size_t>(distance, 1) : distance, distance);
    if (!closest || rank < fewest) {
      closest = name;
      fewest = rank;
    }
  }
  return closest;
}

std::string did_you_mean(std::string_view given, const std::vector<std::string>& names) {
  const auto name = closest_name(given, names);
  return name ? " (did you mean " + *name + "?)" : "";
}

}  // namespace lockstep
