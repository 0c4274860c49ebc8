#pragma once

#include <chrono>

namespace lockstep {

/// Adds up the time that a replica's thread waits for the other replicas: for the sums of its gradients, from
/// when it asks for them, and in collectives. What a wait does meanwhile, such as its part of a sum, counts.
/// Of a GPU's sums it is the host's wait only. Used by one thread at a time.
class WaitClock {
 public:
  /// While it lives, the time counts; once where one is inside another.
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

  /// Of all waits that have ended.
  double seconds() const { return std::chrono::duration<double>(waited_).count(); }

 private:
  std::chrono::steady_clock::duration waited_{};
  std::chrono::steady_clock::time_point begin_;
  int depth_ = 0;
};

}  // namespace lockstep
