#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/training/planning/memory_plan.h"
#include "lockstep/training/planning/recorded_step.h"

namespace lockstep {

/// Returns whether the gradients of ranks are summed.
bool sums_gradients(const TrainingLayout& layout);

/// Returns how many of the replicas are threads of one process.
int64_t replicas_of_process(const TrainingLayout& layout);
/// Returns whether replicas exchange values between processes, which needs memory for what is under way.
bool has_processes(const TrainingLayout& layout);

/// Returns the parts of a plan that are there all the time, of the parameters whose numbers `is_here` has, or
/// of all of them if it is empty.
MemoryPlan kept_memory(const RecordedStep& record, const TrainingLayout& layout,
                       const std::vector<bool>& is_here = {});

/// A bucket of gradients that has memory only while it fills and is summed.
struct PlannedBucket {
  std::vector<size_t> parameters;
  int64_t bytes = 0;
};

/// Returns the buckets of stage 2 in the order in which they fill: that of the reducer's first layout, which
/// stays if sums are divided. The parameters are those of kept_memory().
std::vector<PlannedBucket> planned_buckets(const RecordedStep& record, const TrainingLayout& layout,
                                           const std::vector<bool>& is_here = {});

}  // namespace lockstep
