#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

/// Finds the worker that keeps the others waiting: for each collective it is told how long every worker has
/// worked since the one before. Used by one thread.
class StragglerDetector {
 public:
  struct Straggler {
    int worker = 0;
    double times = 1;  ///< as long as the others' median
  };

  /// Of each worker. Returns one that, over twice a few seconds of its work and many collectives, has taken
  /// more than twice as long as the others' median; once in the object's life.
  std::optional<Straggler> add(const std::vector<std::chrono::microseconds>& busy);

 private:
  std::vector<int64_t> totals_;  // microseconds
  int64_t count_ = 0;
  std::optional<int> suspect_;  // of the window before
  bool has_told_ = false;
};

}  // namespace lockstep
