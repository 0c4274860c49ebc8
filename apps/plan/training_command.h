#pragma once

#include <string>

#include "lockstep/apps/plan/plan_options.h"

namespace lockstep::apps {

/// Returns the flags with which train_gpt trains the planned model in a layout: those of the model, the batch,
/// the mesh and what belongs to it.
std::string training_flags(const PlanOptions& options, const PlannedLayout& layout);

/// Returns the flags of train_gpt in which one layout differs from another, such as "--sharding 2, --recompute
/// every_block"; a mesh counts as one flag.
std::string changed_flags(const PlanOptions& options, const PlannedLayout& from, const PlannedLayout& to);

/// Returns the sequences of a replica in a micro-batch.
int64_t micro_batch_size(const PlanOptions& options, const PlannedLayout& layout);

}  // namespace lockstep::apps
