#include "lockstep/apps/shared/session/pipeline_step_times.h"

#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/reporting/records/measured_pipeline.h"

namespace lockstep::apps {
namespace {

constexpr int64_t kMeasuredStep = 3;

}  // namespace

void PipelineStepTimes::on_step_begin(FitState&) {
  if (++steps_begun_ != kMeasuredStep) return;
  for (auto* stages : stages_.local_values()) stages->record_times(true);
}

void PipelineStepTimes::on_step_end(FitState& state) {
  if (steps_begun_ != kMeasuredStep) return;
  const auto times = state.strategy().run(
      [](ReplicaContext&, PipelineStages* stages) {
        stages->record_times(false);
        return stages->gather_times();
      },
      stages_);
  // Workers have the same plan; each has the times of its own first replica.
  receive_(
      pipeline_record(stages_.local_values().front()->schedule(), times[0], {.step = state.global_step}));
}

}  // namespace lockstep::apps
