#pragma once

#include <cstdint>

namespace lockstep {

/// Which rows of a table parameter servers train, by how often and how lately batches have had them.
struct RowFilter {
  /// A row is stepped from so many updates on: those before are counted, and its values stay what they were
  /// in the beginning. Rare ids, which there is nothing to learn of, so stay neutral. Up to 1: all rows.
  int64_t min_frequency = 0;
  /// A row that none of so many updates of its shard had begins anew: with its initial values, nothing
  /// remembered, and no update counted. 0: it lives for ever.
  int64_t steps_to_live = 0;

  bool operator==(const RowFilter&) const = default;
  bool takes_all() const { return min_frequency <= 1 && steps_to_live == 0; }
};

}  // namespace lockstep
