#pragma once

// Internal: only sources of its layer need it.

#include <functional>
#include <string>
#include <vector>

#include "lockstep/runtime/rendezvous.h"
#include "lockstep/runtime/worker_channel.h"

namespace lockstep {

/// A part of what the replicas of a process do of a collective of all workers.
using CoursePart = std::function<void(std::vector<Rendezvous::Arrival>& arrivals, int part)>;

/// What happens to such a collective: parts, the exchange between the workers, and parts again.
struct HierarchicalCourse {
  std::string description;
  int num_before = 0;
  CoursePart before;
  std::function<WorkerChannel::Works(c10d::Backend&)> exchange;
  std::function<void()> complete;
  int num_after = 0;
  CoursePart after;
};

}  // namespace lockstep
