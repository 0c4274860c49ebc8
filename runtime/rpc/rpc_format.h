#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The purpose of these connections in a ChannelIdentity. After the handshake, the server sends 8 bytes: how
/// much it accepts in one message.
inline constexpr char kRpcPurpose[] = "rpc";

/// The purpose of a message between a parameter server and its clients.
enum class RpcKind : uint8_t {
  kRequest = 0,
  kReply = 1,
  kError = 2,  ///< the reply to a request that failed
};

/// The beginning of a message: the sizes of what follows, so that a receiver can refuse a message before it
/// allocates memory. First comes the "head", the descriptions of the tensors and the fields, then the
/// tensors' bytes, one tensor after another.
struct RpcFrame {
  RpcKind kind = RpcKind::kRequest;
  uint32_t head_bytes = 0;
  uint64_t tensor_bytes = 0;

  bool operator==(const RpcFrame&) const = default;
};

/// The maximum size of a head: 64 MiB.
inline constexpr uint32_t kMaxRpcHeadBytes = uint32_t{1} << 26;

using RpcFrameBytes = std::array<uint8_t, 20>;

RpcFrameBytes encode_frame(const RpcFrame& frame);
/// Throws InvalidArgument if encode_frame() never writes such bytes, or if the head is too large.
RpcFrame decode_frame(std::span<const uint8_t> bytes);

/// The dtypes of tensors that a message can carry. The numbers are part of the format.
enum class RpcDtype : uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,
  kBFloat16 = 3,
  kInt64 = 4,
  kInt32 = 5,
  kUInt8 = 6,
};

struct RpcTensorShape {
  RpcDtype dtype = RpcDtype::kFloat32;
  std::vector<int64_t> sizes;  ///< not negative; empty for a scalar

  /// Returns the tensor's size in bytes. Throws InvalidArgument if it is 2^63 or more.
  uint64_t num_bytes() const;
  bool operator==(const RpcTensorShape&) const = default;
};

struct RpcHead {
  std::vector<RpcTensorShape> tensors;
  std::vector<uint8_t> fields;  ///< content chosen by the two ends

  /// Returns the size of all tensors in bytes. Throws like RpcTensorShape::num_bytes().
  uint64_t tensor_bytes() const;
  bool operator==(const RpcHead&) const = default;
};

/// Throws InvalidArgument if the head has more than kMaxRpcHeadBytes bytes or more than 65536 tensors, or if
/// a tensor has more than 64 dimensions.
std::vector<uint8_t> encode_head(const RpcHead& head);
/// Parses the output of encode_head(). Throws InvalidArgument for anything else.
RpcHead decode_head(std::span<const uint8_t> bytes);

}  // namespace lockstep
