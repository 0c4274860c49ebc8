#include "lockstep/apps/train_images/training/image_stages.h"

#include <c10/util/StringUtil.h>

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_axis.h"
#include "lockstep/apps/shared/strategy_choice/sharded_parts.h"
#include "lockstep/apps/train_images/training/model_choice.h"
#include "lockstep/training/metrics/loss_functions.h"

namespace lockstep::apps {
namespace {

/// Returns the multiplications of each block of the chosen model.
std::vector<double> costs_of_blocks(const TrainOptions& options, int64_t num_classes) {
  if (options.model == ModelKind::kSimpleCnn)
    return simple_cnn_costs(simple_cnn_options(options, num_classes));
  return mobilenet_v2_costs(mobilenet_v2_options(options, num_classes), options.image_size);
}

}  // namespace

void plan_image_stages(const Strategy& strategy, const TrainOptions& options, TrainPlan& plan) {
  const Mesh& mesh = strategy.mesh();
  const std::string axis = axis_of_pipeline(mesh);
  refuse_other_axes(mesh, AxisRole::kModel, {axis},
                    "pipeline as the only axis along which models of images are cut");
  if (axis.empty()) return refuse_schedule_without_stages(mesh, options);
  if (options.cuda_graph) refuse_with_stages(mesh, "--cuda-graph", "no CUDA graph");
  plan.num_stages = num_stages(mesh, options);
  const auto blocks = static_cast<int64_t>(costs_of_blocks(options, /*num_classes=*/1).size());
  if (blocks < plan.num_stages) {
    throw UsageError(c10::str("--mesh ", mesh.str(), ": expected at most ", blocks, " stages of --model ",
                              model_name(options.model), ", but got ", plan.num_stages,
                              " with --pipeline-schedule ", options.pipeline_schedule));
  }
  const int64_t replicas = strategy.num_replicas_in_sync();
  plan.micro_batches = micro_batches_of_stages(mesh, options,
                                               {.largest = (plan.global_batch_size + replicas - 1) / replicas,
                                                .micro_batches = options.accumulate_steps});
}

Pipeline make_image_stages(const TrainOptions& options, const TrainPlan& plan, int64_t num_classes,
                           const Strategy& strategy, ReplicaContext& replica) {
  auto pipeline = pipeline_options(options, plan.micro_batches);
  pipeline.costs = costs_of_blocks(options, num_classes);
  const auto units = sharded_parts(strategy, replica);
  const auto cut = [&](const auto& model) {
    return Pipeline(replica.axis(axis_of_pipeline(strategy.mesh())), model.ptr(), model->blocks(),
                    std::move(pipeline));
  };
  if (options.model == ModelKind::kSimpleCnn)
    return cut(SimpleCnn(simple_cnn_options(options, num_classes), units));
  return cut(MobileNetV2(mobilenet_v2_options(options, num_classes), units));
}

StepOutputs train_image_stages(ReplicaContext& replica, Pipeline& model, const Example& shard,
                               const BackwardOptions& how) {
  const auto result =
      model->forward_backward(replica, shard.data, shard.target,
                              {.losses = cross_entropy, .autocast = how.autocast, .scaler = how.scaler});
  return {.losses = result.losses, .outputs = result.outputs, .targets = shard.target};
}

}  // namespace lockstep::apps
