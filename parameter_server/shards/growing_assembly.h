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
/// assemble_shard(). Counts of rows that are not made yet may become higher. Rows are read, and their parts'
/// dtypes and kinds of state compared, when they are restored. Throws InvalidArgument if a row is in two
/// parts, and if parts differ in shape.
ParameterShard::Saved assemble_growing(const std::vector<SavedShard>& parts, const FilteredRows& filtered,
                                       const RowGrowth& growth);

/// Returns a part of a table with numbered rows as one of the table that grows, which has copies of those of
/// its rows that are in `filtered.rows`. A part of a table that grows is returned as it is. Throws as
/// assemble_growing() does.
ParameterShard::Saved growing_part(const SavedShard& part, const FilteredRows& filtered,
                                   const RowGrowth& growth);

}  // namespace lockstep
