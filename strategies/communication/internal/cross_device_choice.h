#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

/// A cross-device op, and briefly why it is chosen.
struct CrossDeviceCandidate {
  std::shared_ptr<CrossDeviceOps> ops;
  std::string reason;
};

/// Returns what `auto` tries for these devices, best first: NCCL, then the hierarchical copy for two or more
/// GPUs; reduction to one device for mixed kinds; otherwise the hierarchical copy.
std::vector<CrossDeviceCandidate> candidates_for(const Devices& devices);

/// An op that supports the devices, with its first channel.
struct OpenedCrossDeviceOps {
  std::shared_ptr<CrossDeviceOps> ops;
  std::string reason;
  std::unique_ptr<CollectiveChannel> channel;
};

/// Opens the first candidate that accepts the devices and connects them. For each one that does not, prints
/// one line of warning and adds its name and error to the reason. Throws the error of the last candidate if
/// none works. Blocks as CrossDeviceOps::make_channel() does.
OpenedCrossDeviceOps open_first(const std::vector<CrossDeviceCandidate>& candidates, const Devices& devices,
                                std::chrono::milliseconds timeout);

}  // namespace lockstep
