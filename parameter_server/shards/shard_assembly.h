#pragma once

#include <optional>
#include <vector>

#include "lockstep/parameter_server/shards/parameter_shard.h"
#include "lockstep/parameter_server/variables/partitioner.h"

namespace lockstep {

/// Saved state of a shard, and its rows of the variable.
struct SavedShard {
  RowRange rows;
  ParameterShard::Saved saved;
  std::optional<RowFilter> filter{};  ///< that the shard was trained with
};

/// Assembles the state of a shard of `rows` when the variable was split differently at the time it was saved,
/// for example for another number of servers. Values and per-row state are those of the saved rows, bit for
/// bit. Per-shard state is merged so that no update is made twice: every push that any part has applied
/// counts as applied, and step and version are the largest of all parts. So an update that was saved in one
/// part but not yet in another is lost for the latter's rows.
///
/// `parts` may be in any order; those without any of the rows are ignored. Throws InvalidArgument if a row is
/// in no part or in two, if a part's number of rows is not what it says, and if parts differ in shape, dtype,
/// or kind of state.
ParameterShard::Saved assemble_shard(const std::vector<SavedShard>& parts, const RowRange& rows);

}  // namespace lockstep
