#pragma once

#include <cstdint>
#include <string>

#include "lockstep/training/layouts/planned_layout.h"

namespace lockstep::apps {

/// Returns the examples of a replica in a micro-batch.
int64_t micro_batch_size(int64_t global_batch, const PlannedLayout& layout);

/// Returns the flags of train_gpt for a layout, without those that have their defaults, such as
/// "--mesh shard=2 --sharding 2 --micro-batch-size 4".
std::string layout_flags(int64_t global_batch, const PlannedLayout& layout);

/// Returns the flags in which one layout differs from another, such as "--sharding 2, --recompute
/// every_block".
std::string changed_flags(int64_t global_batch, const PlannedLayout& from, const PlannedLayout& to);

}  // namespace lockstep::apps
