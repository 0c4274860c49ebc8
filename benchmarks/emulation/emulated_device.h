#pragma once

#include <chrono>

#include "lockstep/training/layouts/planned_layout.h"

namespace lockstep::benchmarks {

/// A device that computes at given rates: an operator takes operator_seconds, and besides the longer of its
/// floating-point operations at flops_per_second and its bytes at bytes_per_second (Williams et al.,
/// "Roofline", 2009). Time passes by sleeping, so that one machine can emulate more devices than it has
/// cores, as long as they are slower than it is.
///
/// The device has a clock of its own, which goes on with its work and with what it waits for. The host sleeps
/// until it is a few milliseconds ahead of the clock, as it is ahead of a GPU's stream. If the host is late,
/// since its machine is busy with other work, it sleeps less, and the clock does not see it.
///
/// Use it from one thread at a time.
class EmulatedDevice {
 public:
  using Clock = std::chrono::steady_clock;
  using Moment = Clock::time_point;

  explicit EmulatedDevice(const PlannedCluster& cluster);

  /// Sets the clock.
  void begin(Moment moment) { now_ = moment; }
  /// Returns the moment at which all work so far is done.
  Moment now() const { return now_; }
  /// Does the work of an operator. Blocks while the host is too far ahead.
  void compute(double flops, double bytes);
  /// Lets the device do nothing until a moment, and blocks until then.
  void wait_until(Moment moment);

 private:
  double flops_per_second_, bytes_per_second_, operator_seconds_;
  Moment now_;
};

/// Returns the moment so many seconds later.
EmulatedDevice::Moment later(EmulatedDevice::Moment moment, double seconds);

}  // namespace lockstep::benchmarks
