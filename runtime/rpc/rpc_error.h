#pragma once

#include <exception>
#include <string>

#include "lockstep/runtime/rpc/rpc_message.h"

namespace lockstep {

/// An error as a reply: which of Lockstep's it is, or what the system's error is, and the first line of what
/// it says.
RpcMessage encode_error(const std::exception_ptr& error);

/// Throws the error that encode_error() wrote, its text after `prefix`: of the same class where that is
/// InvalidArgument, ClusterError, OutOfMemory or std::system_error, else std::runtime_error.
[[noreturn]] void throw_error(const RpcMessage& message, const std::string& prefix);

}  // namespace lockstep
