#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// What a message between a parameter server and its clients is for.
enum class RpcKind : uint8_t {
  kRequest = 0,
  kReply = 1,
  kError = 2,  ///< the reply to a request that failed
};

/// What a message begins with: the sizes of what follows, by which a receiver refuses it before it takes any
/// memory. First come the descriptions of the tensors and the fields, the "head", then the tensors' bytes,
/// one tensor after the other.
struct RpcFrame {
  RpcKind kind = RpcKind::kRequest;
  uint32_t head_bytes = 0;
  uint64_t tensor_bytes = 0;

  bool operator==(const RpcFrame&) const = default;
};

/// No head is larger: 64 MiB.
inline constexpr uint32_t kMaxRpcHeadBytes = uint32_t{1} << 26;

using RpcFrameBytes = std::array<uint8_t, 20>;

RpcFrameBytes encode_frame(const RpcFrame& frame);
/// Throws InvalidArgument for what encode_frame() does not write, and for a head that is too large.
RpcFrame decode_frame(std::span<const uint8_t> bytes);

/// The dtypes of the tensors that a message can carry; the numbers are the format's.
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
  std::vector<int64_t> sizes;  ///< none is negative; empty: a scalar

  /// Throws InvalidArgument where they are 2^63 or more.
  uint64_t num_bytes() const;
  bool operator==(const RpcTensorShape&) const = default;
};

struct RpcHead {
  std::vector<RpcTensorShape> tensors;
  std::vector<uint8_t> fields;  ///< whatever the two ends agree on

  /// Of all tensors. Throws as RpcTensorShape::num_bytes().
  uint64_t tensor_bytes() const;
  bool operator==(const RpcHead&) const = default;
};

/// Throws InvalidArgument for a head of more than kMaxRpcHeadBytes, more than 65536 tensors, and a tensor of
/// more than 64 dimensions.
std::vector<uint8_t> encode_head(const RpcHead& head);
/// Reads what encode_head() wrote. Throws InvalidArgument for anything else.
RpcHead decode_head(std::span<const uint8_t> bytes);

}  // namespace lockstep
