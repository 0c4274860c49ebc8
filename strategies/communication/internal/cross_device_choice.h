#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

/// A cross-device op, and in a few words why it is taken.
struct CrossDeviceCandidate {
  std::shared_ptr<CrossDeviceOps> ops;
  std::string reason;
};

/// What `auto` tries for these devices, best first: NCCL and then the hierarchical copy for two or more GPUs,
/// reduction to one device for mixed kinds, else the hierarchical copy.
std::vector<CrossDeviceCandidate> candidates_for(const Devices& devices);

/// An op that serves the devices, with its first channel.
struct OpenedCrossDeviceOps {
  std::shared_ptr<CrossDeviceOps> ops;
  std::string reason;
  std::unique_ptr<CollectiveChannel> channel;
};

/// The first candidate that takes the devices and connects them. For each one that does not there is one
/// line of warning, and the reason names it and its error; the last one's error is thrown. Blocks as
/// CrossDeviceOps::make_channel().
OpenedCrossDeviceOps open_first(const std::vector<CrossDeviceCandidate>& candidates, const Devices& devices,
                                std::chrono::milliseconds timeout);

}  // namespace lockstep
