#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <memory>
#include <vector>

#include "lockstep/runtime/backends/internal/hierarchical_sum.h"
#include "lockstep/runtime/workers/worker_layout.h"

namespace lockstep {

/// Returns the stages that reduce, by `op`, the inputs of all replicas of all workers for each replica into
/// that replica's output. The order of the sums is that of sum_stages(). Throws InvalidArgument if two
/// replicas pass the same memory as output.
HierarchicalStages scatter_stages(const std::vector<ReplicaRendezvous::Arrival>& arrivals,
                                  c10d::ReduceOp::RedOpType op, const WorkerLayout& layout);

/// Returns the stages that copy each replica's inputs into the outputs of those that they are for. Throws
/// CollectiveMismatch if the shapes of two local replicas do not match.
HierarchicalStages exchange_stages(const std::vector<ReplicaRendezvous::Arrival>& arrivals,
                                   std::shared_ptr<const WorkerLayout> layout);

}  // namespace lockstep
