#include "lockstep/training/planning/internal/kept_memory.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "lockstep/runtime/gradients/bucket_layout.h"
#include "lockstep/training/state/memory_formula.h"

namespace lockstep {
namespace {

int64_t states_of(PlannedOptimizer optimizer) {
  switch (optimizer) {
    case PlannedOptimizer::kSgd:
      return 0;
    case PlannedOptimizer::kMomentum:
      return 1;
    case PlannedOptimizer::kAdam:
    case PlannedOptimizer::kAdamW:
      return 2;
  }
  return 0;
}

bool is_among(const std::vector<bool>& is_here, size_t parameter) {
  return is_here.empty() || is_here[parameter];
}

}  // namespace

bool sums_gradients(const TrainingLayout& layout) {
  return layout.replicas > 1 || layout.copies > 1;
}

int64_t replicas_of_process(const TrainingLayout& layout) {
  return layout.replicas_per_process == 0 ? layout.replicas
                                          : std::min(layout.replicas_per_process, layout.replicas);
}

bool has_processes(const TrainingLayout& layout) {
  return replicas_of_process(layout) < layout.replicas;
}

MemoryPlan kept_memory(const RecordedStep& record, const TrainingLayout& layout,
                       const std::vector<bool>& is_here) {
  MemoryLayout kept{.stage = layout.stage,
                    .num_parts = layout.replicas,
                    .buckets = layout.buckets,
                    .summed_element_bytes = layout.summed_element_bytes};
  kept.parameters.reserve(record.parameters.size());
  for (size_t i = 0; i < record.parameters.size(); ++i) {
    if (!is_among(is_here, i)) continue;
    const auto& parameter = record.parameters[i];
    kept.parameters.push_back({.elements = parameter.elements,
                               .element_bytes = parameter.element_bytes,
                               .states = states_of(layout.optimizer),
                               .is_trained = parameter.is_trained,
                               .has_sparse_gradient = parameter.has_sparse_gradient});
    if (layout.stage == 3 && parameter.block >= 0) kept.parameters.back().unit = parameter.block;
  }
  const MemoryParts parts = predict_memory(kept);
  MemoryPlan plan{.parameters = parts.parameters,
                  .buffers = record.buffer_bytes,
                  .inputs = std::llround(record.input_bytes.at(layout.examples)),
                  .optimizer_state = parts.optimizer_state.value_or(0)};
  // A single replica's gradients are in no buckets, and not there until backward has made them.
  if (sums_gradients(layout)) {
    plan.gradients = parts.gradients;
    // In stage 2, buckets have memory only while they are summed.
    if (layout.stage != 2) plan.buckets = parts.buckets;
  }
  return plan;
}

std::vector<PlannedBucket> planned_buckets(const RecordedStep& record, const TrainingLayout& layout,
                                           const std::vector<bool>& is_here) {
  std::vector<BucketItem> items;
  std::vector<size_t> order;
  for (const auto& parameter : record.parameters)
    items.push_back({parameter.elements * parameter.element_bytes, std::to_string(parameter.element_bytes)});
  for (size_t i = items.size(); i-- > 0;) {
    const auto& parameter = record.parameters[i];
    if (parameter.is_trained && !parameter.has_sparse_gradient && is_among(is_here, i)) order.push_back(i);
  }
  std::vector<PlannedBucket> buckets;
  for (auto& members : assign_buckets(items, order, layout.buckets)) {
    int64_t bytes = 0;
    for (const size_t i : members) {
      const auto& own = record.parameters[i];
      const bool is_rounded = layout.summed_element_bytes > 0 && own.element_bytes >= 4;
      bytes += own.elements * (own.element_bytes + (is_rounded ? layout.summed_element_bytes : 0));
    }
    buckets.push_back({std::move(members), bytes});
  }
  return buckets;
}

}  // namespace lockstep
