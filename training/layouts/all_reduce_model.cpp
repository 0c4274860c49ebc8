#include "lockstep/training/layouts/all_reduce_model.h"

#include <algorithm>

namespace lockstep {

double ring_bytes(int num_ranks, double bytes) {
  return 2.0 * (num_ranks - 1) / num_ranks * bytes;
}

double ring_all_reduce_seconds(int num_ranks, double bytes, const DeviceLink& link) {
  return 2.0 * (num_ranks - 1) * link.latency_seconds + ring_bytes(num_ranks, bytes) / link.bytes_per_second;
}

double flat_all_reduce_seconds(const LinkedMachines& topology, double bytes) {
  DeviceLink slowest{0, std::numeric_limits<double>::infinity()};
  const auto pass = [&slowest](const DeviceLink& link) {
    slowest.latency_seconds = std::max(slowest.latency_seconds, link.latency_seconds);
    slowest.bytes_per_second = std::min(slowest.bytes_per_second, link.bytes_per_second);
  };
  if (topology.replicas_each > 1) pass(topology.within);
  if (topology.num_machines > 1) pass(topology.between);
  return ring_all_reduce_seconds(topology.num_replicas(), bytes, slowest);
}

double hierarchical_all_reduce_seconds(const LinkedMachines& topology, double bytes) {
  return ring_all_reduce_seconds(topology.replicas_each, bytes, topology.within) +
         ring_all_reduce_seconds(topology.num_machines, bytes, topology.between);
}

}  // namespace lockstep
