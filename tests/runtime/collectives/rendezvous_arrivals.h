#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/collectives/replica_rendezvous.h"
#include "lockstep/runtime/replicas/internal/replica_threads.h"

// A test of the rendezvous would hang, and run into ctest's limit, if a wait did not end. No test measures
// time.

namespace lockstep {

inline constexpr std::chrono::minutes kLong{5};
inline constexpr std::chrono::milliseconds kShort{30};

inline ReplicaRendezvous::Arrival arrival(std::string description) {
  ReplicaRendezvous::Arrival result;
  result.description = std::move(description);
  return result;
}

inline ReplicaRendezvous::Work no_work(std::vector<ReplicaRendezvous::Arrival>&) {
  return {};
}

/// Runs `function(rank)` in a thread a rank and returns what each threw.
inline std::vector<std::exception_ptr> in_threads(int count, const std::function<void(int)>& function) {
  ReplicaThreads threads(count, 1);
  return threads.run(function, [](int, const std::exception_ptr&) {});
}

}  // namespace lockstep
