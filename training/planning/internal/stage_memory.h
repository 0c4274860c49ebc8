#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/training/planning/internal/planned_stages.h"
#include "lockstep/training/planning/memory_plan.h"
#include "lockstep/training/planning/recorded_step.h"

namespace lockstep {

/// The memory that an action of a pipeline's rank adds to what was there before it.
struct ActionMemory {
  MemoryPlan most;  ///< while it runs, at the moment at which most is there
  MemoryPlan end;   ///< afterwards
};

/// The gradient that a micro-batch's backward makes of a parameter.
struct StageGradient {
  size_t parameter = 0;
  int64_t bytes = 0;
};

/// The memory of one stage's actions for one micro-batch. What it receives and sends is not in it: it is
/// there before the actions, and stays.
struct StageMemory {
  ActionMemory forward;
  ActionMemory backward;  ///< at once, up to the gradients of the stage's parameters and input
  bool is_split = false;  ///< whether there are two halves
  /// The halves. If there are not two, one of them is all of `backward`: the second one of the first stage,
  /// and the first one of the others.
  ActionMemory inputs, weights;
  bool keeps_input = false;            ///< until the second half
  bool keeps_output_gradient = false;  ///< the same
  int64_t input_bytes = 0;             ///< of the stage's input, and of its gradient; 0 for the first stage
  int64_t output_bytes = 0;            ///< of the stage's result; 0 for the last one
  std::vector<StageGradient> gradients;
  int64_t gradient_bytes = 0;  ///< of all of them
};

/// Follows the record's events of each stage.
std::vector<StageMemory> memory_of_stages(const RecordedStep& record, const TrainingLayout& layout,
                                          const std::vector<PlannedStage>& stages);

/// All parts of a plan.
inline constexpr std::array kMemoryPlanParts{
    &MemoryPlan::parameters,    &MemoryPlan::buffers,     &MemoryPlan::inputs,  &MemoryPlan::optimizer_state,
    &MemoryPlan::gradients,     &MemoryPlan::activations, &MemoryPlan::buckets, &MemoryPlan::gathered_units,
    &MemoryPlan::communication, &MemoryPlan::allocator};
/// Adds and subtracts by part.
MemoryPlan operator+(MemoryPlan a, const MemoryPlan& b);
MemoryPlan operator-(MemoryPlan a, const MemoryPlan& b);

}  // namespace lockstep
