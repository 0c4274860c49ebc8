#include "lockstep/apps/train_gpt/training/gpt_pipeline_times.h"

#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/reporting/records/measured_pipeline.h"

namespace lockstep::apps {
namespace {

constexpr int64_t kMeasuredStep = 3;

}  // namespace

void GptPipelineTimes::on_step_begin(FitState&) {
  if (++steps_begun_ != kMeasuredStep) return;
  for (auto& gpt : model_.local_values()) gpt->stages()->record_times(true);
}

void GptPipelineTimes::on_step_end(FitState& state) {
  if (steps_begun_ != kMeasuredStep) return;
  const auto times = state.strategy().run(
      [](ReplicaContext&, Gpt& gpt) {
        gpt->stages()->record_times(false);
        return gpt->stages()->gather_times();
      },
      model_);
  // Workers have the same plan; each has the times of its own first replica.
  receive_(pipeline_record(model_.primary()->stages()->schedule(), times[0], {.step = state.global_step}));
}

}  // namespace lockstep::apps
