#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace lockstep {

/// A collective failed because of another rank, which has ended, is late, or sent something wrong. The
/// message names it if it is known.
class BrokenExchange : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A backend that compares the ranks' calls itself, by what each message tells of its call.
class ComparingBackend : public c10d::Backend {
 public:
  using Backend::Backend;

  /// Begins a call, which may consist of several collectives. They throw CollectiveMismatch if another rank
  /// is in another call, and BrokenExchange if another rank is the reason why they cannot finish.
  /// `description` is the same on all ranks.
  virtual void begin_call(uint64_t sequence, const std::string& description) = 0;
  /// Ends the call. Compares it, and blocks until all ranks have come to it, if it had no collectives.
  virtual void end_call() = 0;
};

}  // namespace lockstep
