#pragma once

#include <cstdint>

namespace lockstep {

/// Selects which rows of a table parameter servers train, by how often and how recently batches used them.
struct RowFilter {
  /// A row is trained from this many updates on. Earlier updates are only counted, and the row keeps its
  /// initial values, so that rare ids, about which there is nothing to learn, stay neutral. 0 and 1 train all
  /// rows.
  int64_t min_frequency = 0;
  /// A row that is in none of this many consecutive updates of its shard starts again: with its initial
  /// values, no optimizer state and no updates counted. 0: rows never expire.
  int64_t steps_to_live = 0;

  bool operator==(const RowFilter&) const = default;
  bool takes_all() const { return min_frequency <= 1 && steps_to_live == 0; }
};

}  // namespace lockstep
