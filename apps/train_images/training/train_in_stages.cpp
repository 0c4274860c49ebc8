#include <memory>
#include <utility>

#include "lockstep/apps/shared/session/pipeline_step_times.h"
#include "lockstep/apps/train_images/training/image_stages.h"
#include "lockstep/apps/train_images/training/training_loop.h"

namespace lockstep::apps {

History train_in_stages(const TrainingRun& run) {
  return train_model<Pipeline>(
      run,
      [&](ReplicaContext& replica) {
        return make_image_stages(run.options, run.plan, run.data.num_classes, run.strategy, replica);
      },
      {.forward_backward = train_image_stages,
       .callbacks = [&](const Mirrored<Pipeline>& model) -> Callbacks {
         const auto stages = model.map([](const Pipeline& of_rank) { return &of_rank.ptr()->stages(); });
         return {std::make_shared<PipelineStepTimes>(stages, [&](PipelineRecord step) {
           if (run.record) run.record->set_pipeline(std::move(step));
         })};
       }});
}

}  // namespace lockstep::apps
