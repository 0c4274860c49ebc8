#pragma once

#include <chrono>

namespace lockstep {

/// Adds up the time that a replica's thread waits for the other replicas, in collectives and for its
/// gradients' sums, from the moment it asks for them. Work done during a wait, such as its part of a sum,
/// counts. For sums on a GPU, only the host's wait counts. Use it from one thread at a time.
///
/// Example:
///
///     WaitClock clock;
///     { const WaitClock::Wait wait(clock); work->wait(); }
///     std::cout << clock.seconds() << " s\n";
class WaitClock {
 public:
  /// Counts the time while it lives. Nested waits count once.
  class Wait {
   public:
    explicit Wait(WaitClock& clock) : clock_(clock) {
      if (clock_.depth_++ == 0) clock_.begin_ = std::chrono::steady_clock::now();
    }
    ~Wait() {
      if (--clock_.depth_ == 0) clock_.waited_ += std::chrono::steady_clock::now() - clock_.begin_;
    }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    WaitClock& clock_;
  };

  /// Returns the total of all waits that have ended.
  double seconds() const { return std::chrono::duration<double>(waited_).count(); }

 private:
  std::chrono::steady_clock::duration waited_{};
  std::chrono::steady_clock::time_point begin_;
  int depth_ = 0;
};

}  // namespace lockstep
