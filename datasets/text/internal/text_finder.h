#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Finds texts of a fixed list in a longer text; where several begin at the same place, the longest.
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
  static constexpr size_t kNone = SIZE_MAX;
  struct Node {
    size_t which = kNone;  ///< the text that ends here
    size_t first_edge = 0;
    size_t num_edges = 0;
  };
  struct Edge {
    char byte;
    size_t node;
  };

  std::optional<Match> match_at(std::string_view text, size_t begin) const;

  std::array<bool, 256> begins_ = {};  // whether a text begins with the byte
  std::vector<Node> nodes_;            // a trie; the first one is its root
  std::vector<Edge> edges_;
};

}  // namespace lockstep
