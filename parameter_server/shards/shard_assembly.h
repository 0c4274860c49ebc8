#pragma once

#include <vector>

#include "lockstep/parameter_server/shards/parameter_shard.h"
#include "lockstep/parameter_server/variables/partitioner.h"

namespace lockstep {

/// What a shard has saved, and which rows of its variable these are.
struct SavedShard {
  RowRange rows;
  ParameterShard::Saved saved;
};

/// What a shard of `rows` goes on from where the variable was cut otherwise when it was saved, such as for
/// another number of servers. Values and what is remembered beside them are those of the rows' shards, bit by
/// bit. What a shard has once is taken so that no update is made twice: all pushes that any of them has
/// applied count as applied, and steps and version are the largest ones. So an update that was saved in one
/// of them and not yet in another is lost for the latter's rows.
///
/// `parts` come in any order; those without any of the rows are not looked at. Throws InvalidArgument for a
/// row that no part has or two have, for a part that has another number of rows than it says, and for parts
/// that differ in shape, dtype, or in what they remember.
ParameterShard::Saved assemble_shard(const std::vector<SavedShard>& parts, const RowRange& rows);

}  // namespace lockstep
