#include "lockstep/runtime/rpc/rpc_format.h"

#include <algorithm>
#include <limits>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/little_endian.h"

namespace lockstep {
namespace {

constexpr uint32_t kFrameMagic = 0x5350534C;  // "LSPS"
constexpr uint16_t kFormatVersion = 1;
constexpr size_t kMaxDimensions = 64;  // LibTorch's own limit
constexpr size_t kMaxTensors = 65536;
constexpr uint64_t kMaxBytes = std::numeric_limits<int64_t>::max();

uint64_t element_bytes(RpcDtype dtype) {
  switch (dtype) {
    case RpcDtype::kFloat64:
    case RpcDtype::kInt64:
      return 8;
    case RpcDtype::kFloat32:
    case RpcDtype::kInt32:
      return 4;
    case RpcDtype::kFloat16:
    case RpcDtype::kBFloat16:
      return 2;
    case RpcDtype::kUInt8:
      return 1;
  }
  return 0;
}

void check_head_size(uint64_t size) {
  if (size > kMaxRpcHeadBytes)
    throw InvalidArgument("expected a message's head to have " + std::to_string(kMaxRpcHeadBytes) +
                          " bytes or less, but got " + std::to_string(size));
}

void check_dimensions(size_t count) {
  if (count > kMaxDimensions)
    throw InvalidArgument("expected a tensor of 64 dimensions or less, but got one of " +
                          std::to_string(count));
}

void check_num_tensors(size_t count) {
  if (count > kMaxTensors)
    throw InvalidArgument("expected 65536 tensors or less in a message, but got " + std::to_string(count));
}

}  // namespace

RpcFrameBytes encode_frame(const RpcFrame& frame) {
  LittleEndianWriter writer;
  writer.write(kFrameMagic);
  writer.write(kFormatVersion);
  writer.write(static_cast<uint16_t>(frame.kind));
  writer.write(frame.head_bytes);
  writer.write(frame.tensor_bytes);
  RpcFrameBytes bytes{};
  std::copy(writer.bytes().begin(), writer.bytes().end(), bytes.begin());
  return bytes;
}

RpcFrame decode_frame(std::span<const uint8_t> bytes) {
  LittleEndianReader reader(bytes);
  if (reader.read<uint32_t>() != kFrameMagic) throw InvalidArgument("expected a message of Lockstep's");
  if (const auto version = reader.read<uint16_t>(); version != kFormatVersion)
    throw InvalidArgument("expected messages of version " + std::to_string(kFormatVersion) + ", but got " +
                          std::to_string(version));
  const auto kind = reader.read<uint16_t>();
  if (kind > static_cast<uint16_t>(RpcKind::kError))
    throw InvalidArgument("expected a request or a reply, but got a message of kind " + std::to_string(kind));
  RpcFrame frame{.kind = static_cast<RpcKind>(kind)};
  frame.head_bytes = reader.read<uint32_t>();
  frame.tensor_bytes = reader.read<uint64_t>();
  check_head_size(frame.head_bytes);
  if (reader.num_left() > 0) throw InvalidArgument("expected nothing behind a message's sizes");
  return frame;
}

uint64_t RpcTensorShape::num_bytes() const {
  uint64_t bytes = element_bytes(dtype);
  // A size of 0 empties the tensor, however large the other sizes are.
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) bytes = 0;
  for (const int64_t size : sizes)
    if (bytes > 0 && __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) bytes = UINT64_MAX;
  if (bytes > kMaxBytes) throw InvalidArgument("expected a tensor of less than 2^63 bytes");
  return bytes;
}

uint64_t RpcHead::tensor_bytes() const {
  uint64_t bytes = 0;
  for (const auto& tensor : tensors)
    if (__builtin_add_overflow(bytes, tensor.num_bytes(), &bytes) || bytes > kMaxBytes)
      throw InvalidArgument("expected tensors of less than 2^63 bytes in all");
  return bytes;
}

std::vector<uint8_t> encode_head(const RpcHead& head) {
  check_num_tensors(head.tensors.size());
  LittleEndianWriter writer;
  writer.write(static_cast<uint32_t>(head.tensors.size()));
  for (const auto& tensor : head.tensors) {
    check_dimensions(tensor.sizes.size());
    writer.write(static_cast<uint8_t>(tensor.dtype));
    writer.write(static_cast<uint8_t>(tensor.sizes.size()));
    for (const int64_t size : tensor.sizes) writer.write(size);
  }
  check_head_size(writer.bytes().size() + head.fields.size());
  auto bytes = writer.take();
  bytes.insert(bytes.end(), head.fields.begin(), head.fields.end());
  return bytes;
}

RpcHead decode_head(std::span<const uint8_t> bytes) {
  check_head_size(bytes.size());
  LittleEndianReader reader(bytes);
  RpcHead head;
  const auto count = reader.read<uint32_t>();
  check_num_tensors(count);
  for (uint32_t i = 0; i < count; ++i) {
    RpcTensorShape tensor;
    const auto dtype = reader.read<uint8_t>();
    if (dtype > static_cast<uint8_t>(RpcDtype::kUInt8))
      throw InvalidArgument("expected the number of a dtype, but got " + std::to_string(dtype));
    tensor.dtype = static_cast<RpcDtype>(dtype);
    const auto num_dimensions = reader.read<uint8_t>();
    check_dimensions(num_dimensions);
    for (int dimension = 0; dimension < num_dimensions; ++dimension) {
      tensor.sizes.push_back(reader.read<int64_t>());
      if (tensor.sizes.back() < 0)
        throw InvalidArgument("expected a tensor's size, but got " + std::to_string(tensor.sizes.back()));
    }
    head.tensors.push_back(std::move(tensor));
  }
  const auto fields = reader.next(reader.num_left());
  head.fields.assign(fields.begin(), fields.end());
  return head;
}

}  // namespace lockstep
