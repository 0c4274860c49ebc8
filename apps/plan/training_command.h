#pragma once

#include <string>

#include "lockstep/apps/plan/plan_options.h"

namespace lockstep::apps {

/// Returns the flags with which train_gpt trains the planned model in a layout: those of the model, the
/// batch, the mesh and what belongs to it.
std::string training_flags(const PlanOptions& options, const PlannedLayout& layout);

}  // namespace lockstep::apps
