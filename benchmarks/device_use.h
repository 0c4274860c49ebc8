#pragma once

#include <optional>
#include <vector>

namespace lockstep::benchmarks {

/// A stretch of time in microseconds, on a clock that all intervals of a profile share.
struct TimeInterval {
  double begin = 0;
  double end = 0;
};

/// The work of one device while it was profiled, in any order.
struct DeviceActivity {
  /// Whatever executes on the device: kernels, memory sets, copies within the device.
  std::vector<TimeInterval> kernels;
  std::vector<TimeInterval> copies_from_host;
};

/// How busy a device was between the begin of its first kernel and the end of its last.
struct DeviceUse {
  double microseconds = 0;               ///< from that begin to that end
  double idle_share = 0;                 ///< of that time, in which no kernel executes
  double longest_idle_microseconds = 0;  ///< at once
  /// Of the time of all copies from the host, that in which a kernel executes as well; none without copies.
  std::optional<double> copy_overlap_share;
};

/// Time in which several kernels execute, or several copies are made, counts once. Throws
/// std::invalid_argument where no kernel takes any time, and for an interval that ends before it begins.
DeviceUse measure_device_use(const DeviceActivity& activity);

}  // namespace lockstep::benchmarks
