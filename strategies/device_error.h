#pragma once

// Internal: only sources of its layer need it.

#include <exception>
#include <string>

#include "lockstep/runtime/device.h"

namespace lockstep {

/// Whose error it is.
struct ErrorPlace {
  std::string strategy;
  int replica = 0;
  LogicalDevice device;
};

/// Throws `error`: as OutOfMemory where memory could not be had, as DeviceFailure where LibTorch says that a
/// device failed, each naming the place; anything else as it is.
[[noreturn]] void rethrow_from_device(const std::exception_ptr& error, const ErrorPlace& place);

}  // namespace lockstep
