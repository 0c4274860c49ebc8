#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/runtime/base/net/message_authentication.h"

namespace lockstep {

/// The purpose and the two ends of a connection between processes of a job. The key of the connection is
/// derived from it, so that nobody on the way can lead a connection to another process or use it for
/// something else (RFC 9257, section 4.1).
struct ChannelIdentity {
  std::string purpose;  ///< such as "rpc"
  std::string client;   ///< the process that connects, such as "worker 1"
  std::string server;   ///< the process that it wants to reach, such as "ps 0"
  uint64_t number = 0;  ///< tells channels of the same two processes apart
  /// Of the job's start: a connection of an earlier start is refused.
  uint64_t generation = 0;

  bool operator==(const ChannelIdentity&) const = default;
};

/// Decides whether a server accepts a client, which has not proved yet that it knows the token.
using ChannelAdmission = std::function<bool(const ChannelIdentity&)>;

/// The key of one connection.
using ChannelKey = std::array<uint8_t, 32>;

/// Returns the identity as bytes. Throws InvalidArgument if a text has more than 64 bytes.
std::vector<uint8_t> encode_identity(const ChannelIdentity& identity);
/// Returns nullopt if the bytes are not those of encode_identity(). Safe for untrusted input.
std::optional<ChannelIdentity> decode_identity(std::span<const uint8_t> bytes);

/// Returns the key of a connection: HKDF-SHA256 (RFC 5869) of the token, with the identity as its info.
ChannelKey derive_channel_key(const JobToken& token, const ChannelIdentity& identity);

}  // namespace lockstep
