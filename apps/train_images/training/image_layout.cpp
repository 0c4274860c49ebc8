#include "lockstep/apps/train_images/training/image_layout.h"

#include <algorithm>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/planning/layout_check.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_axis.h"
#include "lockstep/apps/train_images/data/data_location.h"
#include "lockstep/apps/train_images/data/image_data.h"
#include "lockstep/apps/train_images/training/model_choice.h"

namespace lockstep::apps {
namespace {

PlannedOptimizer planned_optimizer(const TrainOptions& options) {
  switch (options.optimizer) {
    case OptimizerKind::kAdam:
      return PlannedOptimizer::kAdam;
    case OptimizerKind::kAdamW:
      return PlannedOptimizer::kAdamW;
    case OptimizerKind::kSgd:
      break;
  }
  return options.momentum > 0 ? PlannedOptimizer::kMomentum : PlannedOptimizer::kSgd;
}

}  // namespace

PlannedImageModel planned_image_model(const TrainOptions& options, int64_t num_classes) {
  PlannedImageModel model{.options = simple_cnn_options(options, num_classes),
                          .image_size = options.image_size,
                          .numbers = planned_numbers(options.precision),
                          .optimizer = planned_optimizer(options)};
  if (options.model == ModelKind::kSimpleCnn) return model;
  auto mobilenet = mobilenet_v2_options(options, num_classes);
  mobilenet.norm_layer = {};  // SyncBatchNorm keeps the same, and a record has no replicas for it.
  model.options = mobilenet;
  return model;
}

LayoutChoices image_layout_choices() {
  return {.with_recomputation = false};
}

PlannedLayout layout_of(const Strategy& strategy, const TrainOptions& options, const TrainPlan& plan) {
  const auto& sharding = strategy.sharding();
  PlannedLayout layout{.stage = sharding.stage, .micro_batches = plan.micro_batches};
  for (const auto& axis : strategy.mesh().axes()) {
    if (axis.role == AxisRole::kModel) {
      layout.pipeline *= axis.size;
    } else {
      (sharding.stage > 0 && axis.name == sharding.axis ? layout.shard : layout.data) *= axis.size;
    }
  }
  if (layout.pipeline == 1) return layout;
  layout.schedule = options.pipeline_schedule;
  layout.stages_per_rank = num_stages(strategy.mesh(), options) / layout.pipeline;
  return layout;
}

void refuse_what_does_not_fit(const Strategy& strategy, const TrainOptions& options, const TrainPlan& plan,
                              int64_t num_classes) {
  const auto memory = memory_to_check(strategy, options);
  if (!memory) return;
  const auto model = planned_image_model(options, num_classes);
  const auto layout = layout_of(strategy, options, plan);
  const int64_t replicas = layout.replicas();
  if (most_image_memory(model, (plan.global_batch_size + replicas - 1) / replicas) <= *memory) return;
  const auto cluster = cluster_of(strategy, *memory);
  if (!layout.schedule.starts_with("zb-")) {
    const auto whole = image_planner(model, cluster, plan.global_batch_size, RecordedPasses::kWhole);
    if (whole.refusal(layout) || whole.memory(layout).peak() <= *memory) return;
  }
  // Other schedules may fit.
  refuse_if_too_large(image_planner(model, cluster, plan.global_batch_size), PlannedProgram::kTrainImages,
                      layout, image_layout_choices());
}

std::string choose_layout(TrainOptions& options) {
  if (options.plan != LayoutPolicy::kAuto) return "";
  const PlannedCluster cluster = measured_cpus(options, options, planned_numbers(options.precision));
  const int64_t num_classes = load_images(locate_data(options.data), options).num_classes;
  const LayoutPlanner planner =
      image_planner(planned_image_model(options, num_classes), cluster, options.global_batch_size);
  const auto [layout, text] = fastest_layout(planner, PlannedProgram::kTrainImages, image_layout_choices());
  options.plan = LayoutPolicy::kCheck;  // A run that is repeated with these options does the same.
  options.mesh = layout.mesh() == "data=1" ? "" : layout.mesh();
  options.sharding = layout.stage;
  options.accumulate_steps = layout.micro_batches;
  options.pipeline_schedule = layout.schedule;
  options.pipeline_cut = PipelineChoice().pipeline_cut;
  options.stages_per_rank = std::max<int64_t>(2, layout.stages_per_rank);
  return text;
}

}  // namespace lockstep::apps
