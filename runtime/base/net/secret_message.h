#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The message by which a process asks the job's first task for the job's secret.
struct SecretRequest {
  std::string job;     ///< the launcher's name for the job; see ClusterResolver::job_id()
  std::string source;  ///< UserAuthentication::name()
  std::vector<uint8_t> proof;

  bool operator==(const SecretRequest&) const = default;
};

/// The first task's answer. Other processes than the user's get one without proof and secret.
struct SecretReply {
  std::vector<uint8_t> proof;
  std::string secret;  ///< JobToken::hex(); empty if it is refused

  bool operator==(const SecretReply&) const = default;
};

/// Messages are preceded by their size in four bytes, and have at most this many without it: enough for a
/// proof with a chain of certificates.
inline constexpr size_t kMaxSecretMessageBytes = size_t{32} * 1024;

/// Returns the message with its size in front. Throws InvalidArgument if it is too large.
std::vector<uint8_t> encode(const SecretRequest& request);
std::vector<uint8_t> encode(const SecretReply& reply);

/// Number of bytes that a message begins with.
inline constexpr size_t kSecretSizeBytes = 4;
/// Returns the size of the message that follows these bytes. Throws InvalidArgument if it is too large.
size_t decode_secret_size(std::span<const uint8_t, kSecretSizeBytes> bytes);
/// Parses a message without its size. Throws InvalidArgument for bytes that encode() does not write. Safe for
/// untrusted input.
SecretRequest decode_secret_request(std::span<const uint8_t> bytes);
SecretReply decode_secret_reply(std::span<const uint8_t> bytes);

}  // namespace lockstep
