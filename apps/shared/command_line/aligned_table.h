#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace lockstep::apps {

/// Rows of cells, which need not be equally many.
using TextTable = std::vector<std::vector<std::string>>;

/// Columns from `first` to `last`.
struct ColumnSpan {
  size_t first = 1;
  size_t last = 0;
};
inline constexpr ColumnSpan kNoColumn{};
inline constexpr ColumnSpan kEveryColumn{.first = 0, .last = std::numeric_limits<size_t>::max()};

/// Returns a line for each row, with two spaces before each cell. Columns are as wide as their widest cells;
/// those in `right_aligned` are aligned at the right, others at the left.
std::string aligned_table(const TextTable& rows, const ColumnSpan& right_aligned = kNoColumn);

}  // namespace lockstep::apps
