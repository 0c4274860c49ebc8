#pragma once

#include <exception>
#include <string>
#include <vector>

#include "lockstep/runtime/devices/device.h"

namespace lockstep {

/// Origin of an error.
struct ErrorSource {
  std::string who;  ///< Strategy, or other component that worked for the replica.
  int replica = 0;
  LogicalDevice device;
};

/// Rethrows `error`: as OutOfMemory if memory could not be allocated, and as DeviceFailure if LibTorch,
/// cuBLAS or cuDNN report that a device failed, each naming the source. Other errors are rethrown unchanged.
[[noreturn]] void rethrow_from_device(const std::exception_ptr& error, const ErrorSource& source);
/// The same for work on the devices of several replicas, whose results go to the first device. Names the
/// device that reports a failure, or the first if none does, since its memory was needed.
[[noreturn]] void rethrow_from_devices(const std::exception_ptr& error, const std::string& who,
                                       const std::vector<LogicalDevice>& devices, int first_replica);

/// Calls `work()` and returns its result. Its errors go through rethrow_from_device().
template <typename Work>
decltype(auto) with_device_errors(const char* who, int replica, const LogicalDevice& device,
                                  const Work& work) {
  try {
    return work();
  } catch (...) {
    rethrow_from_device(std::current_exception(), {who, replica, device});
  }
}

}  // namespace lockstep
