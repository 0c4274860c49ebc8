#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/replica_rendezvous.h"
#include "lockstep/runtime/workers/worker_channel.h"

namespace lockstep {

/// A part of what the replicas of a process do of a collective of all workers.
using CoursePart = std::function<void(std::vector<ReplicaRendezvous::Arrival>& arrivals, int part)>;

/// What happens to such a collective: parts, the exchange between the workers, and parts again.
struct HierarchicalStages {
  std::string description;
  int num_before = 0;
  CoursePart before;
  std::function<WorkerChannel::Works(c10d::Backend&)> exchange;
  std::function<void()> complete;
  int num_after = 0;
  CoursePart after;
};

}  // namespace lockstep
