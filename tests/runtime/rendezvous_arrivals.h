#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/rendezvous.h"
#include "lockstep/runtime/replica_threads.h"

// A test of the rendezvous would hang, and run into ctest's limit, if a wait did not end. No test measures
// time.

namespace lockstep {

inline constexpr std::chrono::minutes kLong{5};
inline constexpr std::chrono::milliseconds kShort{30};

inline Rendezvous::Arrival arrival(std::string description) {
  Rendezvous::Arrival result;
  result.description = std::move(description);
  return result;
}

inline Rendezvous::Work no_work(std::vector<Rendezvous::Arrival>&) {
  return {};
}

/// Runs `function(rank)` in a thread a rank and returns what each threw.
inline std::vector<std::exception_ptr> in_threads(int count, const std::function<void(int)>& function) {
  ReplicaThreads threads(count, 1);
  return threads.run(function, [](int, const std::exception_ptr&) {});
}

}  // namespace lockstep
