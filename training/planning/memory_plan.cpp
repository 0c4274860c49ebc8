#include "lockstep/training/planning/memory_plan.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/planning/internal/kept_memory.h"
#include "lockstep/training/planning/internal/pipeline_memory.h"
#include "lockstep/training/planning/internal/step_simulation.h"

namespace lockstep {
namespace {

void check(const RecordedStep& record, const TrainingLayout& layout) {
  const auto expect = [](bool is_met, const auto& expected, int64_t given) {
    if (!is_met) throw InvalidArgument(c10::str("[plan_memory] expected ", expected, ", but got ", given));
  };
  expect(layout.replicas >= 1, "1 or more replicas", layout.replicas);
  expect(layout.copies >= 1, "1 or more copies", layout.copies);
  expect(layout.replicas_per_process >= 0, "0 or more replicas of a process", layout.replicas_per_process);
  expect(layout.stage >= 0 && layout.stage <= 3, "a stage from 0 to 3", layout.stage);
  expect(layout.examples >= 1, "1 or more examples of a replica", layout.examples);
  expect(layout.micro_batches >= 1, "1 or more micro-batches", layout.micro_batches);
  expect(layout.summed_element_bytes >= 0, "0 or more bytes of a summed element",
         layout.summed_element_bytes);
  expect(layout.allocation_unit >= 1, "an allocation unit of 1 or more bytes", layout.allocation_unit);
  expect(layout.pipeline.ranks >= 1, "1 or more ranks of a pipeline", layout.pipeline.ranks);
  for (const size_t block : layout.recomputed) {
    if (block < record.blocks.size()) continue;
    expect(false, c10::str("blocks to recompute below ", record.blocks.size(), ", as in the record"),
           static_cast<int64_t>(block));
  }
}

MemoryPlan plan_without_stages(const RecordedStep& record, const TrainingLayout& layout) {
  StepSimulation step(record, layout, kept_memory(record, layout));
  if (layout.micro_batches == 1) {
    step.run(MicroBatchPlace::kOnly);
  } else {
    step.run(layout.micro_batches == 2 ? MicroBatchPlace::kFirst : MicroBatchPlace::kMiddle);
    step.run(MicroBatchPlace::kLast);
  }
  step.gather_parameters();
  return step.most();
}

}  // namespace

std::vector<MemoryPlan> plan_memory_of_ranks(const RecordedStep& record, const TrainingLayout& layout) {
  check(record, layout);
  if (layout.pipeline.ranks == 1) return {plan_without_stages(record, layout)};
  return memory_of_pipeline(record, layout);
}

MemoryPlan plan_memory(const RecordedStep& record, const TrainingLayout& layout) {
  const auto plans = plan_memory_of_ranks(record, layout);
  return *std::max_element(plans.begin(), plans.end(),
                           [](const auto& a, const auto& b) { return a.peak() < b.peak(); });
}

}  // namespace lockstep
