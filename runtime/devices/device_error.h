#pragma once

#include <exception>
#include <string>
#include <vector>

#include "lockstep/runtime/devices/device.h"

namespace lockstep {

/// Whose error it is.
struct ErrorSource {
  std::string who;  ///< the strategy, or what else worked for the replica
  int replica = 0;
  LogicalDevice device;
};

/// Throws `error`: as OutOfMemory where memory could not be had, as DeviceFailure where LibTorch, cuBLAS or
/// cuDNN say that a device failed, each naming the place; anything else as it is.
[[noreturn]] void rethrow_from_device(const std::exception_ptr& error, const ErrorSource& place);
/// The same for work on the replicas' devices together, the first of which gets the results. Names the one
/// that says it has failed; else the first, whose memory was wanted.
[[noreturn]] void rethrow_from_devices(const std::exception_ptr& error, const std::string& who,
                                       const std::vector<LogicalDevice>& devices, int first_replica);

/// Calls `work()` and returns what it does. What it throws goes through rethrow_from_device().
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
