#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>

#include "lockstep/runtime/devices/device.h"

namespace lockstep {

/// Describes one rank for which a factory makes a backend.
struct BackendRequest {
  int rank = 0;
  int size = 1;          ///< Number of ranks in all processes.
  LogicalDevice device;  ///< Device of this rank.
  /// Store that all ranks share; this client belongs to this rank alone.
  c10::intrusive_ptr<c10d::Store> store;
  std::chrono::milliseconds timeout{};  ///< Limit of connecting and of every collective.
  int generation = 0;                   ///< How often this channel has connected before.
};

/// Makes a rank's backend. It is called for all ranks at the same time, each in a thread of its own, in the
/// process that has the rank, so that it may wait for the others through the store. Anything that these calls
/// share must be thread-safe. Once all calls have returned, each thread calls eagerConnectSingleDevice() on
/// its backend with the rank's device. The code that opens the channel gets the errors of both.
using BackendFactory = std::function<c10::intrusive_ptr<c10d::Backend>(const BackendRequest&)>;

}  // namespace lockstep
