#pragma once

#include <chrono>

#include "lockstep/runtime/base/net/descriptor.h"

namespace lockstep {

/// Passes a descriptor to the process at the other end of a Unix socket, with one byte. Throws
/// std::system_error.
void send_descriptor(int socket, int descriptor);

/// Receives a descriptor that send_descriptor() sent, and blocks until then. Throws std::system_error:
/// timed_out at the deadline, connection_reset if the other end has closed, bad_message if it sent something
/// else.
Descriptor receive_descriptor(int socket, std::chrono::steady_clock::time_point deadline);

}  // namespace lockstep
