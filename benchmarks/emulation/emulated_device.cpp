#include "lockstep/benchmarks/emulation/emulated_device.h"

#include <algorithm>
#include <thread>

namespace lockstep::benchmarks {
namespace {

constexpr std::chrono::milliseconds kMostAhead{5};

}  // namespace

EmulatedDevice::EmulatedDevice(const PlannedCluster& cluster)
    : flops_per_second_(cluster.flops_per_second),
      bytes_per_second_(cluster.bytes_per_second),
      operator_seconds_(cluster.operator_seconds) {}

void EmulatedDevice::compute(double flops, double bytes) {
  now_ = later(now_, std::max(flops / flops_per_second_, bytes / bytes_per_second_) + operator_seconds_);
  if (now_ - Clock::now() > kMostAhead) std::this_thread::sleep_until(now_ - kMostAhead / 2);
}

void EmulatedDevice::wait_until(Moment moment) {
  now_ = std::max(now_, moment);
  std::this_thread::sleep_until(now_);
}

EmulatedDevice::Moment later(EmulatedDevice::Moment moment, double seconds) {
  return moment +
         std::chrono::duration_cast<EmulatedDevice::Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace lockstep::benchmarks
