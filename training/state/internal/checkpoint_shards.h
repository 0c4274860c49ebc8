#pragma once

#include <string>

#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {

/// Returns the name of a shard's file in a checkpoint: state.pt, state-1.pt and so on.
std::string shard_file_name(int index);

/// Returns one shard of a state that all writers have in common. Each tensor that is reached through dicts
/// alone goes to one shard, so that all get about the same number of bytes; everything else goes to the
/// first. Entries keep their position in the state.
StateValue::Dict shard_of(const StateValue::Dict& state, const StateShard& shard);

/// Key under which a shard identifies itself.
inline constexpr const char* kShardKey = "shard";
/// Returns the value of that key: {"index": 1, "count": 2}.
StateValue::Dict mark_of(const StateShard& shard);

/// Throws CheckpointError naming `source` if the state is a shard.
void check_whole(const StateValue::Dict& state, const std::string& source);

/// Merges a shard into `whole`; undoes shard_of(). Throws CheckpointError naming `source`, the origin of
/// `part`, and the first entry that both contain.
StateValue::Dict merge_shards(const StateValue::Dict& whole, const StateValue::Dict& part,
                              const std::string& source);

}  // namespace lockstep
