#pragma once

#include <functional>
#include <future>

#include "lockstep/training/formats/state_file.h"

namespace lockstep {

/// The state in memory of its own on the host, so that training may go on while it is written. Waits for
/// devices.
StateValue::Dict host_copy(const StateValue::Dict& state);

/// Calls `work` in a thread of its own, in which operators take no other threads: those would wait actively,
/// and keep the replicas from the cores. The future waits for it as it is destroyed. Throws std::system_error
/// where there is no thread to be had.
std::future<void> in_background(std::function<void()> work);

}  // namespace lockstep
