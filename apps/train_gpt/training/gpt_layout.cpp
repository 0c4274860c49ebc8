#include "lockstep/apps/train_gpt/training/gpt_layout.h"

#include <c10/util/StringUtil.h>
#include <torch/cuda.h>

#include <algorithm>
#include <optional>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/planning/gpt_parts.h"
#include "lockstep/apps/shared/planning/layout_flags.h"
#include "lockstep/apps/shared/planning/measured_rates.h"
#include "lockstep/apps/shared/planning/quantity.h"
#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_axis.h"
#include "lockstep/apps/train_gpt/data/gpt_data.h"
#include "lockstep/apps/train_gpt/training/gpt_axes.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/layouts/layout_search.h"

namespace lockstep::apps {
namespace {

PlannedTraining planned_training(PlannedNumbers numbers, int64_t global_batch) {
  return {.global_batch = global_batch, .parameter_bytes = parameter_bytes(numbers)};
}

bool is_on_cpus(const Strategy& strategy) {
  const auto& devices = strategy.devices();
  return std::all_of(devices.begin(), devices.end(),
                     [](const LogicalDevice& device) { return device.kind == DeviceKind::kCpu; });
}

/// Returns the bytes that a device has for the training; nullopt if nobody knows.
std::optional<double> memory_of_device(const Strategy& strategy, const GptTrainOptions& options) {
  if (!options.device_memory.empty()) return parse_bytes("device-memory", options.device_memory);
  if (!is_on_cpus(strategy)) return std::nullopt;
  return memory_of_machine() / strategy.num_local_replicas();
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
  const auto memory =
      options.plan == GptLayoutChoice::kOff ? std::nullopt : memory_of_device(strategy, options);
  if (!memory) return;
  const PlannedNumbers numbers = planned_numbers(options.precision);
  const LayoutPlanner planner(planned_gpt(plan.model, plan.sequence_length, numbers),
                              {.devices = strategy.num_ranks(),
                               .devices_per_machine = strategy.num_local_replicas(),
                               .memory_bytes = *memory,
                               .shares_units = is_on_cpus(strategy)},
                              planned_training(numbers, plan.global_batch_size));
  const PlannedLayout layout = layout_of(strategy, options, plan);
  if (planner.refusal(layout)) return;
  const double needed = planner.memory(layout).peak();
  if (needed <= *memory) return;
  const auto change = nearest_that_fits(planner, layout);
  throw OutOfMemory(
      c10::str("the training needs ", gibibytes_text(needed), " of memory on each device, which has ",
               gibibytes_text(*memory),
               change ? c10::str("; it fits with ", changed_flags(plan.global_batch_size, layout, *change))
                      : "; no other layout of these devices fits",
               ". --plan off starts it all the same"));
}

std::string choose_layout(GptTrainOptions& options) {
  if (options.plan != GptLayoutChoice::kAuto) return "";
  if (requested_cluster(options) != nullptr)
    throw UsageError(
        "--plan auto: expected a single process; for several, call plan and give them its flags");
  const int64_t named = static_cast<int64_t>(options.devices.size()) * options.replicas_per_device;
  const int64_t devices = std::max<int64_t>(1, options.replicas > 0 ? options.replicas : named);
  const bool has_gpus = !options.devices.empty() && options.devices.front().starts_with("gpu");
  if (has_gpus || torch::cuda::is_available())
    throw UsageError("--plan auto: expected CPUs, whose rates it measures; for GPUs, call plan with --gpu");
  const BaseModel base = base_model(options);
  const int64_t length = sequence_length_of(options, base);
  const GptData data = open_gpt_data(options, base, {});
  const GptPlan plan = make_gpt_plan(options, model_to_train(options, base, data.vocabulary_size), length, 1);
  const PlannedNumbers numbers = planned_numbers(options.precision);
  PlannedCluster cluster{.devices = devices, .devices_per_machine = devices};
  cluster.flops_per_second = cluster.bytes_per_second = cluster.within.bytes_per_second = 0;
  measure_rates(numbers, cluster);
  cluster.memory_bytes = options.device_memory.empty() ? memory_of_machine() / static_cast<double>(devices)
                                                       : parse_bytes("device-memory", options.device_memory);
  const LayoutPlanner planner(planned_gpt(plan.model, length, numbers), cluster,
                              planned_training(numbers, plan.global_batch_size));
  const LayoutSearch search = search_layouts(planner, {.most_ranked = 1, .most_unfit = 0});
  if (search.ranked.empty())
    throw OutOfMemory(c10::str(
        "--plan auto: no layout fits into ", gibibytes_text(cluster.memory_bytes),
        search.smallest ? c10::str("; the smallest needs ", gibibytes_text(search.smallest->memory.peak()))
                        : ""));
  const auto& [layout, memory, time] = search.ranked.front();
  options.plan = GptLayoutChoice::kCheck;  // A run that is repeated with these options does the same.
  options.mesh = layout.mesh() == "data=1" ? "" : layout.mesh();
  options.sharding = layout.stage;
  options.micro_batch_size = micro_batch_size(plan.global_batch_size, layout);
  options.recompute = layout.recomputes ? GptRecompute::kEveryBlock : GptRecompute::kNothing;
  options.sequence_parallel = layout.has_sequence_shards;
  options.pipeline_schedule = layout.schedule;
  options.stages_per_rank = std::max<int64_t>(2, layout.stages_per_rank);
  return c10::str("plan: ", layout_flags(plan.global_batch_size, layout), "; ", gibibytes_text(memory.peak()),
                  " of each device, ", search.num_fit, " of ", search.num_candidates, " layouts fit");
}

}  // namespace lockstep::apps
