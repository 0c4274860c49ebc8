#include "lockstep/training/planning/recorded_memory.h"

#include <memory>
#include <utility>

namespace lockstep {
namespace {

LayoutMemory by_part(const MemoryPlan& plan) {
  const auto bytes = [](int64_t number) { return static_cast<double>(number); };
  return {.parameters = bytes(plan.parameters + plan.buffers),
          .gradients = bytes(plan.gradients),
          .optimizer_state = bytes(plan.optimizer_state),
          .activations = bytes(plan.activations + plan.allocator),
          .buckets = bytes(plan.buckets),
          .gathered_units = bytes(plan.gathered_units),
          .communication = bytes(plan.communication),
          .inputs = bytes(plan.inputs)};
}

}  // namespace

LayoutMemoryFunction recorded_memory(RecordedStep record, const PlannedCluster& cluster,
                                     const PlannedTraining& training, const RecordedTraining& how) {
  const auto shared = std::make_shared<const RecordedStep>(std::move(record));
  return [shared, cluster, training, how](const PlannedLayout& layout) {
    const int64_t of_replica = (training.global_batch + layout.replicas() - 1) / layout.replicas();
    TrainingLayout planned{
        .replicas = layout.stage > 0 ? layout.shard : layout.data * layout.shard,
        .copies = layout.stage > 0 ? layout.data : 1,
        .replicas_per_process = cluster.shares_units ? 0 : 1,
        .stage = layout.stage,
        .examples = (of_replica + layout.micro_batches - 1) / layout.micro_batches,
        .micro_batches = layout.micro_batches,
        .optimizer = how.optimizer,
        .buckets = {.first_bucket_bytes = training.first_bucket_bytes, .bucket_bytes = training.bucket_bytes},
        .allocation_unit = how.allocation_unit};
    if (layout.recomputes) planned.recomputed = how.recomputed;
    if (layout.pipeline > 1)
      planned.pipeline = {.ranks = static_cast<int>(layout.pipeline),
                          .schedule = layout.schedule,
                          .stages_per_rank = static_cast<int>(layout.stages_per_rank),
                          .costs = how.stage_costs};
    std::vector<LayoutMemory> ranks;
    for (const auto& plan : plan_memory_of_ranks(*shared, planned)) ranks.push_back(by_part(plan));
    return ranks;
  };
}

}  // namespace lockstep
