#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

/// Finds a worker that keeps the others waiting, from how long each worker worked before each collective. Not
/// thread-safe.
class StragglerDetector {
 public:
  struct Straggler {
    int worker = 0;
    double times = 1;  ///< work time relative to the others' median
  };

  /// Adds each worker's work time before one collective, or before `num_collectives` of them. Returns a
  /// worker that, in two consecutive windows of at least 50 collectives and 2 s of its work, took more than
  /// twice the others' median; at most once in the object's lifetime.
  std::optional<Straggler> add(const std::vector<std::chrono::microseconds>& busy, int num_collectives = 1);

 private:
  std::vector<int64_t> totals_;  // microseconds
  int64_t count_ = 0;
  std::optional<int> suspect_;  // of the previous window
  bool has_told_ = false;
};

}  // namespace lockstep
