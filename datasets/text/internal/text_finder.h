#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Finds texts of a fixed list in a longer text. If several begin at the same place, finds the longest.
/// Thread-safe.
class TextFinder {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    size_t which = 0;  ///< in the list
  };

  /// Of equal texts, the first one is found. Empty texts are not found.
  explicit TextFinder(const std::vector<std::string>& texts);

  /// Returns the first match that begins at `from` or after it.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  struct Entry {
    std::string text;
    size_t which = 0;
  };
  /// Entries that begin alike.
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };

  std::optional<Match> match_at(std::string_view text, size_t begin) const;

  std::vector<Entry> entries_;         // in the order of their bytes, none twice
  std::array<Range, 256> first_ = {};  // those that begin with each byte
};

}  // namespace lockstep
