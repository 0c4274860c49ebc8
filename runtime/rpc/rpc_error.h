#pragma once

#include <exception>
#include <string>

#include "lockstep/runtime/rpc/rpc_message.h"

namespace lockstep {

/// Encodes an error as a reply: its class, the error code of a std::system_error, and the first line of its
/// message.
RpcMessage encode_error(const std::exception_ptr& error);

/// Throws the error that encode_error() encoded, with `prefix` before its text: of the same class if that is
/// InvalidArgument, PeerLost, ClusterError, OutOfMemory or std::system_error, otherwise std::runtime_error.
[[noreturn]] void throw_error(const RpcMessage& message, const std::string& prefix);

}  // namespace lockstep
