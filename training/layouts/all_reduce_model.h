#pragma once

#include <limits>

namespace lockstep {

/// A way between two ranks: what one message takes whatever its size, and how fast bytes follow each other.
struct DeviceLink {
  double latency_seconds = 0;
  double bytes_per_second = std::numeric_limits<double>::infinity();
};

/// So many bytes leave each rank of a ring that sums `bytes`: 2 (n - 1) / n of them. It is the least that any
/// all-reduce can do with.
double ring_bytes(int num_ranks, double bytes);

/// Seconds for the sum of `bytes` over a ring: 2 (n - 1) latencies, and ring_bytes() at the link's bandwidth
/// (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, Journal of
/// Parallel and Distributed Computing 69, 2009). 0 for one rank.
double ring_all_reduce_seconds(int num_ranks, double bytes, const DeviceLink& link);

/// Machines with several replicas each.
struct LinkedMachines {
  int num_machines = 1;
  int replicas_each = 1;
  DeviceLink within;   ///< between two replicas of a machine
  DeviceLink between;  ///< between two machines, shared by all replicas of one

  int num_replicas() const { return num_machines * replicas_each; }
};

/// One ring over all replicas of all machines, laid out so that it leaves each machine once. All of its steps
/// take as long as the slowest link's.
double flat_all_reduce_seconds(const LinkedMachines& topology, double bytes);

/// First within each machine, then one rank a machine between them: two rings, one after the other.
double hierarchical_all_reduce_seconds(const LinkedMachines& topology, double bytes);

}  // namespace lockstep
