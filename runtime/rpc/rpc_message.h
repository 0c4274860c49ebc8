#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/runtime/base/net/stream_socket.h"
#include "lockstep/runtime/rpc/rpc_format.h"

namespace lockstep {

/// What goes from a client to a parameter server, and back.
struct RpcMessage {
  std::vector<uint8_t> fields;      ///< such as LittleEndianWriter's
  std::vector<at::Tensor> tensors;  ///< dense, on the CPU
};

/// What is needed of a message before it goes out: its head, and its tensors laid out to be sent. Holds them.
class OutgoingMessage {
 public:
  /// Copies tensors that are not contiguous. Throws InvalidArgument for one that is not dense, not on the
  /// CPU, or of a dtype that is no RpcDtype.
  OutgoingMessage(RpcKind kind, RpcMessage message);

  /// Of all that goes out.
  uint64_t num_bytes() const;
  /// Blocks for the timeout at most, and a second more for each megabyte. Throws as StreamSocket::send(), and
  /// what `on_readable` throws, see there.
  void send(StreamSocket& socket, std::chrono::milliseconds timeout,
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
  /// For the first byte to come.
  StreamSocket::Clock::time_point begin = StreamSocket::kNoDeadline;
  /// For all that follows, and a second more for each megabyte.
  std::chrono::milliseconds timeout = std::chrono::minutes(1);
};

/// The next message; false where the other end has closed. The tensors' memory is taken once their sizes were
/// found to be within the limit, and received into directly. Throws InvalidArgument for a message that is
/// larger and for what is none, and as StreamSocket::receive().
bool receive_message(StreamSocket& socket, const ReceiveLimits& limits, IncomingMessage& incoming);

}  // namespace lockstep
