#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The start of every message of an exchange: the sender of the bytes that follow, and the call. The ranks
/// compare their calls by it, so that no rank adds values that belong to another call.
struct MessageHeader {
  uint64_t generation = 0;   ///< of the job's start and channel; messages of another one are refused
  uint64_t sequence = 0;     ///< the collective's number in the channel
  uint64_t fingerprint = 0;  ///< of the collective's description
  uint32_t number = 0;       ///< of the message among those from this rank to its receiver in the collective
  uint64_t payload_bytes = 0;
  /// The collective's description, cut to kMaxTextBytes. Only the first message of a collective to a rank has
  /// it.
  std::string text{};

  bool operator==(const MessageHeader&) const = default;
};

/// Size of the header without its text.
inline constexpr size_t kMessageHeaderBytes = 44;
inline constexpr size_t kMaxTextBytes = 240;

std::vector<uint8_t> encode(const MessageHeader& header);

/// Returns how many bytes of text follow. Throws InvalidArgument if the kMessageHeaderBytes bytes are not a
/// header, or the text is too long.
size_t text_bytes_of(std::span<const uint8_t> bytes);

/// Returns the header that kMessageHeaderBytes bytes and its text are. Throws InvalidArgument like
/// text_bytes_of().
MessageHeader decode_header(std::span<const uint8_t> bytes);

/// Returns a hash that is the same on every machine (FNV-1a).
uint64_t fingerprint_of(std::string_view text);

}  // namespace lockstep
