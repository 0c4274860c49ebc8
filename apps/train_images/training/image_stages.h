#pragma once

#include "lockstep/apps/train_images/data/image_data.h"
#include "lockstep/apps/train_images/options/train_options.h"
#include "lockstep/runtime/replicas/replica_context.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/strategies/parallel/pipeline.h"
#include "lockstep/training/trainer/trainer_step.h"

namespace lockstep::apps {

/// Throws UsageError for flags and axes that do not go together with an axis pipeline of the mesh, for flags
/// that need it if there is none, for another axis along which models are cut, for more stages than the model
/// has blocks, and for micro-batches that the schedule cannot share. It needs no data.
void check_image_stages(const Strategy& strategy, const TrainOptions& options);

/// Decides the stages of the model and the micro-batches of a step if the mesh has an axis pipeline; see
/// micro_batches_of_stages(). Throws as check_image_stages().
void plan_image_stages(const Strategy& strategy, const TrainOptions& options, TrainPlan& plan);

/// Makes the chosen model for `num_classes` classes as a Pipeline along that axis, cut so that stages have
/// about equally many multiplications.
Pipeline make_image_stages(const TrainOptions& options, const TrainPlan& plan, int64_t num_classes,
                           const Strategy& strategy, ReplicaContext& replica);

/// Goes forward and backward through the cross entropies of a shard of the batch.
StepOutputs train_image_stages(ReplicaContext& replica, Pipeline& model, const Example& shard,
                               const BackwardOptions& how);

}  // namespace lockstep::apps
