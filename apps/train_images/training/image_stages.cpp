#include "lockstep/apps/train_images/training/image_stages.h"

#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/precision/precision_choice.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_axis.h"
#include "lockstep/apps/shared/strategy_choice/sharded_parts.h"
#include "lockstep/apps/train_images/training/model_choice.h"
#include "lockstep/strategies/parallel/block_costs.h"
#include "lockstep/training/metrics/loss_functions.h"

namespace lockstep::apps {
namespace {

/// Returns the multiplications of each block of the chosen model.
std::vector<double> costs_of_blocks(const TrainOptions& options, int64_t num_classes) {
  if (options.model == ModelKind::kSimpleCnn)
    return simple_cnn_costs(simple_cnn_options(options, num_classes));
  return mobilenet_v2_costs(mobilenet_v2_options(options, num_classes), options.image_size);
}

/// Returns flags with which a model of so many blocks has a stage on each rank.
std::string stages_that_would_do(const Mesh& mesh, const TrainOptions& options, int64_t blocks) {
  const int64_t ranks = ranks_along(mesh, kPipelineAxis);
  const int64_t most_ranks = blocks / (num_stages(mesh, options) / ranks);
  if (most_ranks > 1) return c10::str("at most ", most_ranks, " ranks along the axis pipeline");
  if (options.pipeline_schedule == "interleaved" && blocks / ranks > 1)
    return c10::str("--stages-per-rank ", blocks / ranks);
  return c10::str("--pipeline-schedule 1f1b",
                  ranks > blocks ? c10::str(" with at most ", blocks, " ranks along the axis pipeline") : "");
}

void check_blocks(const Mesh& mesh, const TrainOptions& options) {
  const int64_t stages = num_stages(mesh, options);
  const auto blocks = static_cast<int64_t>(costs_of_blocks(options, /*num_classes=*/1).size());
  if (stages <= blocks) return;
  throw UsageError(c10::str("--mesh ", mesh.str(), ": expected at most ", blocks, " stages of --model ",
                            model_name(options.model), ", but got ", stages, " with --pipeline-schedule ",
                            options.pipeline_schedule, ": ", stages_that_would_do(mesh, options, blocks),
                            " would do"));
}

void check_micro_batches(const Mesh& mesh, const TrainOptions& options) {
  const int64_t ranks = ranks_along(mesh, kPipelineAxis);
  const int64_t given = options.accumulate_steps;
  if (options.pipeline_schedule != "interleaved" || given % ranks == 0) return;
  const int64_t below = given / ranks * ranks;
  throw UsageError(c10::str("--accumulate-steps ", given, ": expected a number that the ", ranks,
                            " ranks along the axis pipeline of --mesh ", mesh.str(),
                            " divide, with --pipeline-schedule interleaved: ",
                            below > 0 ? c10::str(below, " or ") : "", below + ranks, " would do"));
}

}  // namespace

void check_image_stages(const Strategy& strategy, const TrainOptions& options) {
  const Mesh& mesh = strategy.mesh();
  const std::string axis = axis_of_pipeline(mesh);
  refuse_other_axes(
      mesh, AxisRole::kModel, {axis},
      "pipeline as the only axis along which models of images are cut, as ranks cannot share a "
      "convolution (--mesh pipeline=N cuts between layers, and --sharding 3 divides parameters)");
  if (axis.empty()) return refuse_schedule_without_stages(mesh, options);
  if (options.cuda_graph) refuse_with_stages(mesh, "--cuda-graph", "no CUDA graph");
  check_blocks(mesh, options);
  check_micro_batches(mesh, options);
}

void plan_image_stages(const Strategy& strategy, const TrainOptions& options, TrainPlan& plan) {
  check_image_stages(strategy, options);
  const Mesh& mesh = strategy.mesh();
  if (axis_of_pipeline(mesh).empty()) return;
  plan.num_stages = num_stages(mesh, options);
  const int64_t replicas = strategy.num_replicas_in_sync();
  plan.micro_batches = micro_batches_of_stages(mesh, options,
                                               {.largest = (plan.global_batch_size + replicas - 1) / replicas,
                                                .micro_batches = options.accumulate_steps});
}

std::vector<double> image_stage_costs(const TrainOptions& options, const TrainPlan& plan, int64_t num_classes,
                                      Strategy& strategy) {
  if (options.pipeline_cut != "time") return costs_of_blocks(options, num_classes);
  TrainOptions whole = options;
  whole.sync_batch_norm = false;  // One rank computes alone.
  const auto dtype = parameter_dtype(options.precision);
  const auto make = [&](ReplicaContext&) {
    const auto of = [&](auto model) {
      model->to(dtype);
      return ModelOfBlocks{model.ptr(), model->blocks()};
    };
    if (whole.model == ModelKind::kSimpleCnn) return of(SimpleCnn(simple_cnn_options(whole, num_classes)));
    return of(MobileNetV2(mobilenet_v2_options(whole, num_classes)));
  };
  const int64_t pieces = plan.micro_batches * strategy.num_replicas_in_sync();
  const std::vector<int64_t> sizes{(plan.global_batch_size + pieces - 1) / pieces, channels_of(options.model),
                                   options.image_size, options.image_size};
  const auto images = torch::linspace(-1, 1, c10::multiply_integers(sizes), dtype).reshape(sizes);
  return measure_block_costs(strategy, make, images, {.autocast = autocast_dtype(options.precision)});
}

Pipeline make_image_stages(const TrainOptions& options, const ImageStages& stages, const Strategy& strategy,
                           ReplicaContext& replica) {
  auto pipeline = pipeline_options(options, stages.plan.micro_batches, stages.costs);
  const int64_t num_classes = stages.num_classes;
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
