#include "lockstep/datasets/images/ignored_files.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/datasets/images/internal/image_names.h"

namespace lockstep {
namespace {

constexpr size_t kMaxKinds = 4;

/// Returns a number and a kind: "8 .gif", "1 folder", "2 files without extension".
std::string count_of(const std::string& kind, size_t count) {
  const std::string plural = count == 1 ? "" : "s";
  if (kind == "/") return std::to_string(count) + " folder" + plural;
  if (kind.empty()) return std::to_string(count) + " file" + plural + " without extension";
  return std::to_string(count) + " " + kind;
}

/// Returns the kinds, the most common first: "8 .gif, 3 .bmp".
std::string kinds_of(const std::vector<std::string>& names) {
  std::map<std::string, size_t> counts;
  for (const std::string& name : names) ++counts[name.ends_with('/') ? "/" : extension_of(name)];
  std::vector<std::pair<std::string, size_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& left, const auto& right) { return left.second > right.second; });
  std::string text;
  size_t num_others = names.size();
  for (size_t i = 0; i < std::min(sorted.size(), kMaxKinds); ++i) {
    const auto& [kind, count] = sorted[i];
    num_others -= count;
    text += (i == 0 ? "" : ", ") + count_of(kind, count);
  }
  return num_others == 0 ? text : text + ", " + std::to_string(num_others) + " of other kinds";
}

}  // namespace

std::string IgnoredFiles::describe(size_t max_names) const {
  if (names.empty()) return "";
  std::string text = kinds_of(names);
  for (size_t i = 0; i < std::min(names.size(), max_names); ++i) text += (i == 0 ? ": " : ", ") + names[i];
  return names.size() <= max_names ? text : text + ", ...";
}

}  // namespace lockstep
