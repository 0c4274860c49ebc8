#include "lockstep/runtime/rpc/rpc_message.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

constexpr std::array<std::pair<RpcDtype, at::ScalarType>, 7> kDtypes{{
    {RpcDtype::kFloat32, at::kFloat},
    {RpcDtype::kFloat64, at::kDouble},
    {RpcDtype::kFloat16, at::kHalf},
    {RpcDtype::kBFloat16, at::kBFloat16},
    {RpcDtype::kInt64, at::kLong},
    {RpcDtype::kInt32, at::kInt},
    {RpcDtype::kUInt8, at::kByte},
}};

constexpr size_t kFirstHeadBytes = size_t{64} * 1024;

RpcDtype dtype_of(const at::Tensor& tensor) {
  for (const auto& [number, dtype] : kDtypes)
    if (dtype == tensor.scalar_type()) return number;
  throw InvalidArgument(
      c10::str("expected a tensor of a dtype that messages carry, but got ", tensor.dtype()));
}

at::ScalarType scalar_type_of(RpcDtype dtype) {
  for (const auto& [number, type] : kDtypes)
    if (number == dtype) return type;
  throw InvalidArgument("expected the number of a dtype");  // decode_head() lets none of these through
}

std::span<uint8_t> bytes_of(const at::Tensor& tensor) {
  return {static_cast<uint8_t*>(tensor.data_ptr()), tensor.nbytes()};
}

/// A link slower than a megabyte a second counts as broken.
StreamSocket::Clock::time_point deadline_of(std::chrono::milliseconds timeout, uint64_t num_bytes) {
  return StreamSocket::Clock::now() + timeout + std::chrono::microseconds(num_bytes);
}

}  // namespace

OutgoingMessage::OutgoingMessage(RpcKind kind, RpcMessage message)
    : message_(std::move(message)), frame_{.kind = kind} {
  RpcHead head;
  for (auto& tensor : message_.tensors) {
    if (!tensor.defined() || tensor.layout() != at::kStrided || !tensor.is_cpu())
      throw InvalidArgument(c10::str("expected dense tensors on the CPU, but got ", tensor.toString()));
    tensor = tensor.detach().contiguous();
    head.tensors.push_back({dtype_of(tensor), tensor.sizes().vec()});
  }
  head.fields = std::move(message_.fields);
  frame_.tensor_bytes = head.tensor_bytes();
  head_ = encode_head(head);
  frame_.head_bytes = static_cast<uint32_t>(head_.size());
}

uint64_t OutgoingMessage::num_bytes() const {
  return std::tuple_size_v<RpcFrameBytes> + frame_.head_bytes + frame_.tensor_bytes;
}

void OutgoingMessage::send(SecureSocket& socket, std::chrono::milliseconds timeout,
                           const std::function<void()>& on_readable) const {
  const auto frame = encode_frame(frame_);
  std::vector<std::span<const uint8_t>> parts{frame, head_};
  for (const auto& tensor : message_.tensors) parts.push_back(bytes_of(tensor));
  socket.send(parts, deadline_of(timeout, num_bytes()), on_readable);
}

bool receive_message(SecureSocket& socket, const ReceiveLimits& limits, IncomingMessage& incoming) {
  RpcFrameBytes frame_bytes{};
  if (!socket.receive({frame_bytes}, limits.begin)) return false;
  const auto frame = decode_frame(frame_bytes);
  incoming.kind = frame.kind;
  const uint64_t beside_tensors = frame_bytes.size() + frame.head_bytes;
  if (beside_tensors > limits.max_bytes || frame.tensor_bytes > limits.max_bytes - beside_tensors)
    throw InvalidArgument(c10::str("expected a message of ", limits.max_bytes,
                                   " bytes or less, but got one of ", frame.head_bytes, " and ",
                                   frame.tensor_bytes, " of tensors"));

  const auto deadline = deadline_of(limits.timeout, frame.tensor_bytes);
  const auto receive_rest = [&](const std::vector<std::span<uint8_t>>& parts) {
    if (!socket.receive(parts, deadline))
      throw std::system_error(std::make_error_code(std::errc::connection_reset), "receive");
  };
  // Memory grows with the bytes that arrive, whatever the frame announces.
  std::vector<uint8_t> head_bytes;
  while (head_bytes.size() < frame.head_bytes) {
    const size_t begin = head_bytes.size();
    head_bytes.resize(std::min<size_t>(frame.head_bytes, std::max<size_t>(2 * begin, kFirstHeadBytes)));
    receive_rest({std::span(head_bytes).subspan(begin)});
  }
  auto head = decode_head(head_bytes);
  if (head.tensor_bytes() != frame.tensor_bytes)
    throw InvalidArgument(c10::str("expected ", frame.tensor_bytes, " bytes of tensors, but got shapes of ",
                                   head.tensor_bytes()));
  incoming.message.fields = std::move(head.fields);
  incoming.message.tensors.clear();
  std::vector<std::span<uint8_t>> parts;
  for (const auto& tensor : head.tensors) {
    incoming.message.tensors.push_back(at::empty(tensor.sizes, scalar_type_of(tensor.dtype)));
    parts.push_back(bytes_of(incoming.message.tensors.back()));
  }
  receive_rest(parts);
  return true;
}

}  // namespace lockstep
