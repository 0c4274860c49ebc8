#include "lockstep/apps/train_gpt/training/gpt_layout.h"

#include <algorithm>

#include "lockstep/apps/shared/planning/gpt_parts.h"
#include "lockstep/apps/shared/planning/layout_check.h"
#include "lockstep/apps/shared/planning/layout_flags.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_axis.h"
#include "lockstep/apps/train_gpt/data/gpt_data.h"
#include "lockstep/apps/train_gpt/training/gpt_axes.h"
#include "lockstep/training/layouts/layout_search.h"

namespace lockstep::apps {
namespace {

PlannedTraining planned_training(PlannedNumbers numbers, int64_t global_batch) {
  return {.global_batch = global_batch, .parameter_bytes = parameter_bytes(numbers)};
}

}  // namespace

PlannedLayout layout_of(const Strategy& strategy, const GptTrainOptions& options, const GptPlan& plan) {
  const Mesh& mesh = strategy.mesh();
  const auto& sharding = strategy.sharding();
  const bool is_v = options.pipeline_schedule == "zb-v";
  PlannedLayout layout{.stage = sharding.stage,
                       .micro_batches = plan.micro_batches,
                       .recomputes = options.recompute == GptRecompute::kEveryBlock,
                       .has_sequence_shards = options.sequence_parallel};
  for (const auto& axis : mesh.axes()) {
    if (axis.role == AxisRole::kContext) {
      layout.context *= axis.size;
    } else if (axis.role == AxisRole::kModel) {
      (axis.name == kPipelineAxis ? layout.pipeline : layout.tensor) *= axis.size;
    } else if (axis.name == axis_of_experts(mesh)) {
      layout.expert *= axis.size;
    } else if (sharding.stage > 0 && axis.name == sharding.axis) {
      layout.shard *= axis.size;
    } else {
      layout.data *= axis.size;
    }
  }
  if (layout.pipeline == 1) return layout;
  layout.schedule = options.pipeline_schedule;
  layout.stages_per_rank = is_v ? 2 : layout.schedule == "interleaved" ? options.stages_per_rank : 1;
  return layout;
}

void refuse_what_does_not_fit(const Strategy& strategy, const GptTrainOptions& options, const GptPlan& plan) {
  const auto memory = memory_to_check(strategy, options);
  if (!memory) return;
  const PlannedNumbers numbers = planned_numbers(options.precision);
  const LayoutPlanner planner(planned_gpt(plan.model, plan.sequence_length, numbers),
                              cluster_of(strategy, *memory),
                              planned_training(numbers, plan.global_batch_size));
  refuse_if_too_large(planner, PlannedProgram::kTrainGpt, layout_of(strategy, options, plan));
}

std::string choose_layout(GptTrainOptions& options) {
  if (options.plan != LayoutPolicy::kAuto) return "";
  const PlannedNumbers numbers = planned_numbers(options.precision);
  const PlannedCluster cluster = measured_cpus(options, options, numbers);
  const BaseModel base = base_model(options);
  const int64_t length = sequence_length_of(options, base);
  const GptData data = open_gpt_data(options, base, {});
  const GptPlan plan = make_gpt_plan(options, model_to_train(options, base, data.vocabulary_size), length, 1);
  const LayoutPlanner planner(planned_gpt(plan.model, length, numbers), cluster,
                              planned_training(numbers, plan.global_batch_size));
  const auto [layout, text] = fastest_layout(planner, PlannedProgram::kTrainGpt);
  options.plan = LayoutPolicy::kCheck;  // A run that is repeated with these options does the same.
  options.mesh = layout.mesh() == "data=1" ? "" : layout.mesh();
  options.sharding = layout.stage;
  options.micro_batch_size = micro_batch_size(plan.global_batch_size, layout);
  options.recompute = layout.recomputes ? GptRecompute::kEveryBlock : GptRecompute::kNothing;
  options.sequence_parallel = layout.has_sequence_shards;
  options.pipeline_schedule = layout.schedule;
  options.pipeline_cut = PipelineChoice().pipeline_cut;
  options.stages_per_rank = std::max<int64_t>(2, layout.stages_per_rank);
  return text;
}

}  // namespace lockstep::apps
