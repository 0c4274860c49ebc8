#include "lockstep/training/planning/memory_plan.h"

#include <c10/util/StringUtil.h>

#include <cmath>
#include <string>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/planning/internal/step_simulation.h"
#include "lockstep/training/state/memory_formula.h"

namespace lockstep {
namespace {

void check(const RecordedStep& record, const TrainingLayout& layout) {
  const auto expect = [](bool is_met, const std::string& expected, int64_t given) {
    if (!is_met) throw InvalidArgument(c10::str("[plan_memory] expected ", expected, ", but got ", given));
  };
  expect(layout.replicas >= 1, "1 or more replicas", layout.replicas);
  expect(layout.stage >= 0 && layout.stage <= 3, "a stage from 0 to 3", layout.stage);
  expect(layout.examples >= 1, "1 or more examples of a replica", layout.examples);
  expect(layout.micro_batches >= 1, "1 or more micro-batches", layout.micro_batches);
  expect(layout.summed_element_bytes >= 0, "0 or more bytes of a summed element",
         layout.summed_element_bytes);
  expect(layout.allocation_unit >= 1, "an allocation unit of 1 or more bytes", layout.allocation_unit);
  for (const size_t block : layout.recomputed) {
    expect(block < record.blocks.size(),
           c10::str("blocks to recompute below ", record.blocks.size(), ", as in the record"),
           static_cast<int64_t>(block));
  }
}

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

/// Returns what is there all the time.
MemoryPlan kept_memory(const RecordedStep& record, const TrainingLayout& layout) {
  MemoryLayout kept{.stage = layout.stage,
                    .num_parts = layout.replicas,
                    .buckets = layout.buckets,
                    .summed_element_bytes = layout.summed_element_bytes};
  kept.parameters.reserve(record.parameters.size());
  for (const auto& parameter : record.parameters) {
    kept.parameters.push_back({.elements = parameter.elements,
                               .element_bytes = parameter.element_bytes,
                               .states = states_of(layout.optimizer),
                               .is_trained = parameter.is_trained});
    if (layout.stage == 3 && parameter.block >= 0) kept.parameters.back().unit = parameter.block;
  }
  const MemoryParts parts = predict_memory(kept);
  MemoryPlan plan{.parameters = parts.parameters,
                  .buffers = record.buffer_bytes,
                  .inputs = std::llround(record.input_bytes.at(layout.examples)),
                  .optimizer_state = parts.optimizer_state.value_or(0)};
  // A single replica's gradients are in no buckets, and not there until backward has made them.
  if (layout.replicas > 1) {
    plan.gradients = parts.gradients;
    // In stage 2, buckets have memory only while they are summed.
    if (layout.stage != 2) plan.buckets = parts.buckets;
  }
  return plan;
}

}  // namespace

MemoryPlan plan_memory(const RecordedStep& record, const TrainingLayout& layout) {
  check(record, layout);
  StepSimulation step(record, layout, kept_memory(record, layout));
  if (layout.micro_batches == 1) {
    step.run(MicroBatchPlace::kOnly);
    return step.most();
  }
  step.run(layout.micro_batches == 2 ? MicroBatchPlace::kFirst : MicroBatchPlace::kMiddle);
  step.run(MicroBatchPlace::kLast);
  return step.most();
}

}  // namespace lockstep
