#pragma once

#include <string>

#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {

/// The file of a checkpoint that a shard is in: state.pt, state-1.pt and so on.
std::string shard_file_name(int index);

/// What a shard holds of a state that all who write shards have alike. Each tensor that dicts alone lead to
/// is in one of them, so that they get about as many bytes each; all else is in the first one. What a shard
/// holds is where it was in the state.
StateValue::Dict shard_of(const StateValue::Dict& state, const StateShard& shard);

/// Under which key a shard says which one it is.
inline constexpr const char* kShardKey = "shard";
/// What it says there: {"index": 1, "count": 2}.
StateValue::Dict mark_of(const StateShard& shard);

/// Throws CheckpointError naming `source` where the state is a shard, not a whole one.
void check_whole(const StateValue::Dict& state, const std::string& source);

/// Both together, as shard_of() has cut them. Throws CheckpointError naming `source`, where `part` comes
/// from, and the first entry that `whole` has too.
StateValue::Dict merge_shards(const StateValue::Dict& whole, const StateValue::Dict& part,
                              const std::string& source);

}  // namespace lockstep
