#include <memory>
#include <utility>

#include "lockstep/apps/shared/session/pipeline_step_times.h"
#include "lockstep/apps/train_images/training/image_stages.h"
#include "lockstep/apps/train_images/training/training_loop.h"

namespace lockstep::apps {

History train_in_stages(const TrainingRun& run) {
  const ImageStages stages{
      .plan = run.plan,
      .num_classes = run.data.num_classes,
      .costs = image_stage_costs(run.options, run.plan, run.data.num_classes, run.strategy)};
  return train_model<Pipeline>(
      run,
      [&](ReplicaContext& replica) { return make_image_stages(run.options, stages, run.strategy, replica); },
      {.forward_backward = train_image_stages,
       .callbacks = [&](const Mirrored<Pipeline>& model) -> Callbacks {
         const auto own_stages = model.map([](const Pipeline& of_rank) { return &of_rank.ptr()->stages(); });
         return {std::make_shared<PipelineStepTimes>(own_stages, [&](PipelineRecord step) {
           if (run.record) run.record->set_pipeline(std::move(step));
         })};
       }});
}

}  // namespace lockstep::apps
