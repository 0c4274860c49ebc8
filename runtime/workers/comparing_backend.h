#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <string>

namespace lockstep {

/// A backend that compares the ranks' calls itself, by what each message tells of its call.
class ComparingBackend : public c10d::Backend {
 public:
  using Backend::Backend;

  /// Begins a call, which may consist of several collectives. They throw CollectiveMismatch if another rank
  /// is in another call. `description` is the same on all ranks.
  virtual void begin_call(uint64_t sequence, const std::string& description) = 0;
  /// Ends the call. Compares it, and blocks until all ranks have come to it, if it had no collectives.
  virtual void end_call() = 0;
};

}  // namespace lockstep
