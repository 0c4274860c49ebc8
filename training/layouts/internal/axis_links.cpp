#include "lockstep/training/layouts/internal/axis_links.h"

#include <algorithm>

namespace lockstep {
namespace {

int64_t size_of(const PlannedLayout& layout, PlannedAxis axis) {
  switch (axis) {
    case PlannedAxis::kData:
      return layout.data;
    case PlannedAxis::kShard:
      return layout.shard;
    case PlannedAxis::kExpert:
      return layout.expert;
    case PlannedAxis::kPipeline:
      return layout.pipeline;
    case PlannedAxis::kContext:
      return layout.context;
    case PlannedAxis::kTensor:
      break;
  }
  return layout.tensor;
}

/// Returns the distance between neighbours along an axis: the last one varies fastest.
int64_t distance_along(const PlannedLayout& layout, PlannedAxis axis) {
  int64_t distance = 1;
  for (auto later = PlannedAxis::kTensor; later > axis;
       later = static_cast<PlannedAxis>(static_cast<uint8_t>(later) - 1)) {
    distance *= size_of(layout, later);
  }
  return distance;
}

}  // namespace

AxisRanks along_axis(const PlannedCluster& cluster, const PlannedLayout& layout, PlannedAxis axis) {
  AxisRanks ranks{.size = size_of(layout, axis), .within = cluster.within, .between = cluster.between};
  const int64_t distance = distance_along(layout, axis);
  const int64_t of_machine = std::min(cluster.devices_per_machine, cluster.devices);
  ranks.local = std::clamp<int64_t>(of_machine / distance, 1, ranks.size);
  ranks.machines = (ranks.size + ranks.local - 1) / ranks.local;
  // All groups that reach into a machine use its link at the same time.
  ranks.between.bytes_per_second *= static_cast<double>(ranks.local) / static_cast<double>(of_machine);
  return ranks;
}

PlannedAxis sharded_axis(const PlannedLayout& layout) {
  return layout.shard == 1 && layout.expert > 1 ? PlannedAxis::kExpert : PlannedAxis::kShard;
}

double sum_seconds(const AxisRanks& ranks, double bytes) {
  if (ranks.size == 1) return 0;
  return hierarchical_all_reduce_seconds({.num_machines = static_cast<int>(ranks.machines),
                                          .replicas_each = static_cast<int>(ranks.local),
                                          .within = ranks.within,
                                          .between = ranks.between},
                                         bytes);
}

double gather_seconds(const AxisRanks& ranks, double bytes) {
  return sum_seconds(ranks, bytes) / 2;
}

double exchange_seconds(const AxisRanks& ranks, double bytes) {
  if (ranks.size == 1) return 0;
  const double each = bytes / static_cast<double>(ranks.size);
  const auto local = static_cast<double>(ranks.local - 1);
  const auto remote = static_cast<double>(ranks.size - ranks.local);
  const double within = local * (ranks.within.latency_seconds + each / ranks.within.bytes_per_second);
  // The machine's link carries what all of its ranks send.
  const double between = remote * (ranks.between.latency_seconds +
                                   each * static_cast<double>(ranks.local) / ranks.between.bytes_per_second);
  return within + between;
}

double message_seconds(const AxisRanks& ranks, double bytes) {
  if (ranks.size == 1) return 0;
  // If any pair of neighbours is on two machines, the others wait for it.
  const DeviceLink& link = ranks.machines > 1 ? ranks.between : ranks.within;
  return link.latency_seconds + bytes / link.bytes_per_second;
}

}  // namespace lockstep
