#pragma once

#include <vector>

#include "lockstep/parameter_server/shards/shard_assembly.h"
#include "lockstep/parameter_server/variables/row_growth.h"

namespace lockstep {

/// Assembles the state of a shard of `filtered.rows` of a table that grows. `parts` are all saved shards of
/// the variable, in any order. They are either of a table that grows, split differently, or of a table with
/// numbered rows, whose rows 0 to n - 1 are then those of ids 0 to n - 1 if `growth` takes them. Leaves
/// out rows of a numbered table that its row filter had not trained yet, or had reset.
///
/// State by row is that of the saved rows, bit for bit, and their age in updates; the rest is merged as by
/// assemble_shard(). Counts of rows that are not made yet may become higher. Throws InvalidArgument if a row
/// is in two parts, and if parts differ in shape, dtype or kind of state.
ParameterShard::Saved assemble_growing(const std::vector<SavedShard>& parts, const FilteredRows& filtered,
                                       const RowGrowth& growth);

}  // namespace lockstep
