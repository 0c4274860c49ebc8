#pragma once

#include <cstdint>

#include "lockstep/training/layouts/planned_layout.h"

namespace lockstep {

enum class PlannedAxis : uint8_t { kData, kShard, kExpert, kPipeline, kContext, kTensor };

/// The ranks along an axis, as they lie on machines.
struct AxisRanks {
  int64_t size = 1;
  int64_t local = 1;     ///< of them on one machine
  int64_t machines = 1;  ///< over which they are spread
  DeviceLink within{};   ///< between two on one machine
  DeviceLink between{};  ///< between machines: this group's share of the machine's link
};

AxisRanks along_axis(const PlannedCluster& cluster, const PlannedLayout& layout, PlannedAxis axis);

/// Returns the axis along which parameters or state are divided.
PlannedAxis sharded_axis(const PlannedLayout& layout);

// Seconds among the ranks of an axis, first within each machine, then between them.

/// Of a sum of `bytes` on each rank.
double sum_seconds(const AxisRanks& ranks, double bytes);
/// Of gathering `bytes` from all ranks together, or of summing them to one part for each: half a sum.
double gather_seconds(const AxisRanks& ranks, double bytes);
/// Of an exchange of `bytes` of each rank with all others in equal parts.
double exchange_seconds(const AxisRanks& ranks, double bytes);
/// Of a message to the next rank.
double message_seconds(const AxisRanks& ranks, double bytes);

}  // namespace lockstep
