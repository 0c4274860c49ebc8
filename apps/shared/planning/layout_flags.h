#pragma once

#include <cstdint>
#include <string>

#include "lockstep/training/layouts/planned_layout.h"

namespace lockstep::apps {

/// The programs that train planned models. Their flags for a layout differ.
enum class PlannedProgram : uint8_t { kTrainGpt, kTrainImages, kTrainCtr };

/// Returns such as "train_gpt".
std::string program_name(PlannedProgram program);

/// Returns the examples of a replica in a micro-batch.
int64_t micro_batch_size(int64_t global_batch, const PlannedLayout& layout);

/// Returns the program's flags for a layout, without those that have their defaults, such as "--mesh shard=2
/// --sharding 2 --micro-batch-size 4".
std::string layout_flags(PlannedProgram program, int64_t global_batch, const PlannedLayout& layout);

/// Returns the flags in which one layout differs from another, such as "--sharding 2, --recompute
/// every_block".
std::string changed_flags(PlannedProgram program, int64_t global_batch, const PlannedLayout& from,
                          const PlannedLayout& to);

}  // namespace lockstep::apps
