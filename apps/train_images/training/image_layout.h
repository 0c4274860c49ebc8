#pragma once

#include <cstdint>
#include <string>

#include "lockstep/apps/shared/planning/image_parts.h"
#include "lockstep/apps/train_images/options/train_options.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/layouts/layout_search.h"

namespace lockstep::apps {

/// Returns the chosen model for plans.
PlannedImageModel planned_image_model(const TrainOptions& options, int64_t num_classes);

/// Returns the layouts in which models of images are trained: nothing is computed again.
LayoutChoices image_layout_choices();

/// Returns the layout of a training.
PlannedLayout layout_of(const Strategy& strategy, const TrainOptions& options, const TrainPlan& plan);

/// Refuses a training that needs more memory than a device has for it, before its first step: throws
/// OutOfMemory with what it needs, and the flags that change least and would make it fit. See
/// memory_to_check() for the memory of a device. Records the model, see record_image_model(), unless a
/// formula says that it fits by far.
void refuse_what_does_not_fit(const Strategy& strategy, const TrainOptions& options, const TrainPlan& plan,
                              int64_t num_classes);

/// With --plan auto, sets the options to the fastest layout that fits, by rates that are measured here, and
/// returns a line that tells it; otherwise returns an empty text. Reads the data, which has the number of
/// classes. Throws UsageError in a cluster and on GPUs; OutOfMemory if nothing fits.
std::string choose_layout(TrainOptions& options);

}  // namespace lockstep::apps
