#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns random bytes from the system, for keys and nonces. Throws std::runtime_error if the system has
/// none. Thread-safe.
std::array<uint8_t, 32> random_bytes();

/// The secret that the processes of one job share. Messages carry a tag, the HMAC-SHA256 (RFC 2104) under the
/// secret; receivers read nothing of a message before its tag has been verified. Messages are not encrypted.
///
/// Anyone who knows the secret can forge messages of the job: give hex() only to the job's processes, and
/// never send it over a channel that others can read. Thread-safe.
class JobToken {
 public:
  using Tag = std::array<uint8_t, 32>;

  /// Uses the text's bytes as the secret; a short text can be guessed. Throws InvalidArgument if the text is
  /// empty.
  static JobToken from_text(const std::string& text);
  /// Makes a secret of 32 random_bytes().
  static JobToken random();
  /// Parses the output of hex(). Throws InvalidArgument for an empty text, an odd number of digits, or
  /// another character; the message does not contain the text.
  static JobToken from_hex(const std::string& digits);

  /// Returns the secret as hexadecimal digits, two per byte.
  std::string hex() const;

  Tag tag(std::span<const uint8_t> message) const;
  /// Returns a key that only processes with the secret can derive: HKDF-SHA256 (RFC 5869). Keys with another
  /// salt or info say nothing about it.
  std::array<uint8_t, 32> derive_key(std::string_view salt, std::span<const uint8_t> info) const;
  /// Returns true if `tag` is the tag of `message`. Runs in constant time, wherever a wrong tag differs.
  bool verify(std::span<const uint8_t> message, std::span<const uint8_t> tag) const;

 private:
  explicit JobToken(std::vector<uint8_t> secret);

  std::vector<uint8_t> secret_;
};

}  // namespace lockstep
