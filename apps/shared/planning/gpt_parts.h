#pragma once

#include <cstdint>

#include "lockstep/apps/shared/planning/planned_numbers.h"
#include "lockstep/models/gpt/gpt_options.h"
#include "lockstep/training/layouts/planned_model.h"

namespace lockstep::apps {

/// Returns the parts of a Gpt as train_gpt trains it on sequences of `length` tokens, without making it: the
/// embeddings, each block, and the head with the loss, as the axis "pipeline" cuts them. All parts are
/// formulas of the model's sizes, so that a model of any size can be planned.
///
/// The formulas are what ModuleRecorder sees of a small Gpt on the CPU, and hold for all sizes because the
/// operators of a block are the same at each: a test compares them with records. Those of kMixed, of dropout
/// and of experts follow from the operators' definitions, and are not compared. CPUs compute RMSNorm by
/// several operators, which keep two vectors more of each token than a GPU's fused one.
///
/// Throws std::invalid_argument as complete_gpt_options(), and for a length below 1.
///
/// Example:
///
///     const LayoutPlanner planner(planned_gpt(gpt_preset("llama-2-7b"), 4096, PlannedNumbers::kMixed),
///                                 cluster, {.global_batch = 512});
PlannedModel planned_gpt(const GptOptions& options, int64_t length, PlannedNumbers numbers);

}  // namespace lockstep::apps
