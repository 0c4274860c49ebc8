#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/runtime/base/net/secure_socket.h"
#include "lockstep/runtime/rpc/rpc_format.h"

namespace lockstep {

/// A message from a client to a parameter server, or back.
struct RpcMessage {
  std::vector<uint8_t> fields;      ///< for example written by LittleEndianWriter
  std::vector<at::Tensor> tensors;  ///< dense, on the CPU
};

/// A message prepared for sending: its head, and its tensors as contiguous memory. Keeps the tensors alive.
class OutgoingMessage {
 public:
  /// Copies tensors that are not contiguous. Throws InvalidArgument if a tensor is not dense, not on the CPU,
  /// or of a dtype that RpcDtype lacks.
  OutgoingMessage(RpcKind kind, RpcMessage message);

  /// Returns the number of bytes to send.
  uint64_t num_bytes() const;
  /// Sends the message. Blocks for at most `timeout`, plus one second per megabyte. Throws what
  /// SecureSocket::send() and `on_readable` throw; see there.
  void send(SecureSocket& socket, std::chrono::milliseconds timeout,
            const std::function<void()>& on_readable = {}) const;

 private:
  RpcMessage message_;
  std::vector<uint8_t> head_;
  RpcFrame frame_;
};

struct IncomingMessage {
  RpcKind kind = RpcKind::kRequest;
  RpcMessage message;
};

struct ReceiveLimits {
  uint64_t max_bytes = 0;
  /// Deadline for the first byte.
  StreamSocket::Clock::time_point begin = StreamSocket::kNoDeadline;
  /// Timeout for the rest, plus one second per megabyte.
  std::chrono::milliseconds timeout = std::chrono::minutes(1);
};

/// Receives the next message. Returns false if the other end has closed. Allocates the tensors after checking
/// their sizes against the limit, and receives directly into them. Throws InvalidArgument if the message is
/// too large or malformed, and what SecureSocket::receive() throws.
bool receive_message(SecureSocket& socket, const ReceiveLimits& limits, IncomingMessage& incoming);

}  // namespace lockstep
