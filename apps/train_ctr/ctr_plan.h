#pragma once

#include "lockstep/apps/shared/planning/click_parts.h"
#include "lockstep/apps/train_ctr/ctr_options.h"
#include "lockstep/training/layouts/layout_search.h"

namespace lockstep::apps {

/// Returns the chosen model for plans.
PlannedClickModel planned_click_model(const CtrWork& work);

/// Returns how it is trained, if all replicas or workers make each step together.
PlannedTraining planned_click_training(const CtrWork& work);

/// Returns the layouts in which click models are trained: replicas with whole tables, and parameter servers.
LayoutChoices click_layout_choices();

}  // namespace lockstep::apps
