#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/training/reporting/records/metrics_log.h"

namespace lockstep {

/// Memory that one rank needs for a model, in bytes, by what it holds.
struct MemoryParts {
  int64_t parameters = 0;  ///< those that the rank keeps
  int64_t gradients = 0;   ///< those that it keeps until the step, in buckets or outside of them
  std::optional<int64_t> optimizer_state = {};  ///< absent if it is not known
  /// The most that buckets need besides `gradients`: for sums of which the rank keeps a part only, and for
  /// copies in a shorter dtype.
  int64_t buckets = 0;
  int64_t gathered_units = 0;  ///< most of whole parameters of units at a time, this rank's share of them

  int64_t sum() const {
    return parameters + gradients + optimizer_state.value_or(0) + buckets + gathered_units;
  }
};

/// The memory of one rank, and what a formula says it should be.
struct RankMemory {
  int64_t rank = 0;  ///< number of the rank among all
  MemoryParts measured = {};
  std::optional<MemoryParts> predicted = {};  ///< absent if no formula applies
};

/// Returns the row of metrics.jsonl. A prediction has the names of the parts with `predicted_` before them.
MetricRow metric_row(const RankMemory& memory);
/// Reads such a row, which anybody may have written: values that are no numbers of bytes count as absent.
RankMemory rank_memory_of(const MetricRow& row);

/// One part of the memory, over several ranks.
struct RankMemoryPart {
  std::string name;  ///< as in MemoryParts, or `sum`
  int64_t least = 0;
  int64_t most = 0;
  std::optional<int64_t> predicted = {};  ///< the most of the ranks
};

/// Returns the parts that any rank has or should have, and then their sum; nothing if there are no ranks. A
/// part that some rank does not know is left out of the parts, and the sum goes without it.
std::vector<RankMemoryPart> parts_of_ranks(const std::vector<RankMemory>& ranks);

/// Returns what a table shows of a part: its name in words, the bytes measured, the least and the most if
/// they read differently, and the bytes predicted.
std::vector<std::string> cells_of(const RankMemoryPart& part);

}  // namespace lockstep
