#pragma once

#include <functional>
#include <future>

#include "lockstep/training/formats/state_file.h"

namespace lockstep {

/// Copies the state to new memory on the host, so that training may continue while it is written. Keeps
/// tensors without memory, of the device "meta". Waits for devices.
StateValue::Dict host_copy(const StateValue::Dict& state);

/// Calls `work` in a new thread in which operators use no other threads, because those would spin and take
/// cores from the replicas. The future's destructor waits for it. Throws std::system_error if no thread can
/// be started.
std::future<void> in_background(std::function<void()> work);

}  // namespace lockstep
