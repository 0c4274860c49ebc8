#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/collectives/replica_rendezvous.h"
#include "lockstep/runtime/workers/worker_channel.h"
#include "lockstep/runtime/workers/worker_layout.h"

namespace lockstep {

/// Does one part of the local replicas' work in a collective of all workers.
using StagePart = std::function<void(std::vector<ReplicaRendezvous::Arrival>& arrivals, int part)>;

/// The stages of a collective of all workers: local parts, the exchange between workers, and local parts
/// again.
struct HierarchicalStages {
  std::string description;
  int num_before = 0;
  StagePart before;
  std::function<WorkerChannel::Works(c10d::Backend&)> exchange;
  std::function<void()> complete;
  int num_after = 0;
  StagePart after;
};

/// Returns the stages that reduce the outputs of all replicas of all workers in place, by `op`. Complex
/// numbers count as pairs of real ones. `compression` may be null. Throws InvalidArgument if two replicas
/// pass the same memory.
HierarchicalStages sum_stages(const std::vector<ReplicaRendezvous::Arrival>& arrivals,
                              c10d::ReduceOp::RedOpType op, const WorkerLayout& layout,
                              const std::shared_ptr<GradientCompression>& compression);

}  // namespace lockstep
