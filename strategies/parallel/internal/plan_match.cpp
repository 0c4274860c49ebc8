#include "lockstep/strategies/parallel/internal/plan_match.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/closest_name.h"

namespace lockstep {
namespace {

std::vector<std::string_view> parts_of_name(std::string_view name) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t dot = name.find('.');
    parts.push_back(name.substr(0, dot));
    if (dot == std::string_view::npos) return parts;
    name.remove_prefix(dot + 1);
  }
}

bool matches_part(std::string_view pattern, std::string_view part) {
  if (pattern.empty()) return part.empty();
  if (pattern.front() != '*')
    return !part.empty() && pattern.front() == part.front() &&
           matches_part(pattern.substr(1), part.substr(1));
  for (size_t skipped = 0; skipped <= part.size(); ++skipped) {
    if (matches_part(pattern.substr(1), part.substr(skipped))) return true;
  }
  return false;
}

}  // namespace

bool names_module(const std::string& pattern, const std::string& name) {
  const auto patterns = parts_of_name(pattern);
  const auto parts = parts_of_name(name);
  return std::equal(patterns.begin(), patterns.end(), parts.begin(), parts.end(), matches_part);
}

std::string pattern_of(const std::string& name) {
  std::string pattern;
  for (const auto part : parts_of_name(name)) {
    const bool is_number = !part.empty() && std::all_of(part.begin(), part.end(),
                                                        [](unsigned char c) { return std::isdigit(c) != 0; });
    if (!pattern.empty()) pattern += ".";
    pattern += is_number ? "*" : part;
  }
  return pattern;
}

std::string text_of_line(const ParallelPlanLine& line) {
  return "{\"" + line.modules + "\", " +
         (std::holds_alternative<ColwiseParallel>(line.style) ? "ColwiseParallel" : "RowwiseParallel") + "}";
}

void refuse_unmatched(const ParallelPlanLine& line, const std::vector<std::string>& can_be_cut) {
  constexpr size_t kMost = 12;
  std::vector<std::string> patterns;
  for (const auto& name : can_be_cut) {
    if (std::find(patterns.begin(), patterns.end(), pattern_of(name)) == patterns.end())
      patterns.push_back(pattern_of(name));
  }
  std::string listed;
  for (size_t i = 0; i < std::min(patterns.size(), kMost); ++i)
    listed += (i > 0 ? ", '" : " '") + patterns[i] + "'";
  throw InvalidArgument(
      "[parallelize] expected the plan's line " + text_of_line(line) +
      " to name a module, but it names none" + did_you_mean(pattern_of(line.modules), patterns) + ": " +
      (listed.empty() ? "the module has none that can be cut" : "those that can be cut are" + listed) +
      (patterns.size() > kMost ? ", and others" : ""));
}

}  // namespace lockstep
