#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/parameter_server/shards/parameter_shard.h"
#include "lockstep/parameter_server/shards/saved_rows.h"

namespace lockstep {

/// Opens the file of a shard of a table that grows, and returns the shard's saved state, which reads its rows
/// from the file in pieces. The checksums of the file's parts must have been checked. Throws CheckpointError
/// naming the file and the entry that state_of_shard() cannot have written.
ParameterShard::Saved open_growing_shard(const std::string& path);

}  // namespace lockstep
