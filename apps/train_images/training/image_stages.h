#pragma once

#include <cstdint>
#include <vector>

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

/// Returns the costs of the model's blocks, by which it is cut into stages: their multiplications, or the
/// seconds that they take. These are measured in a run of the strategy, and the same on all workers.
std::vector<double> image_stage_costs(const TrainOptions& options, const TrainPlan& plan, int64_t num_classes,
                                      Strategy& strategy);

/// The stages that a model of images is cut into.
struct ImageStages {
  const TrainPlan& plan;
  int64_t num_classes = 0;
  std::vector<double> costs;  ///< see image_stage_costs()
};

/// Makes the chosen model as a Pipeline along that axis.
Pipeline make_image_stages(const TrainOptions& options, const ImageStages& stages, const Strategy& strategy,
                           ReplicaContext& replica);

/// Goes forward and backward through the cross entropies of a shard of the batch.
StepOutputs train_image_stages(ReplicaContext& replica, Pipeline& model, const Example& shard,
                               const BackwardOptions& how);

}  // namespace lockstep::apps
