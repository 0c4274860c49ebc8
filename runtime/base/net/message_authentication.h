#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Bytes out of the system's source of randomness, for keys and nonces. Throws std::runtime_error where that
/// has none to give. Thread-safe.
std::array<uint8_t, 32> random_bytes();

/// The secret that the processes of one job share. It tells their messages from those of everybody else:
/// a message travels with its tag, the HMAC-SHA256 (RFC 2104) under the secret, and nothing of it is looked
/// at before the tag was found right. It does not hide what a message says.
///
/// Whoever knows the secret can write messages of the job: hand hex() to its processes only, and to no
/// channel that strangers can read. Thread-safe.
class JobToken {
 public:
  using Tag = std::array<uint8_t, 32>;

  /// The secret is the text's bytes; a short one can be guessed. Throws InvalidArgument for an empty text.
  static JobToken from_text(const std::string& text);
  /// A secret of 32 random_bytes().
  static JobToken random();
  /// Reads what hex() wrote. Throws InvalidArgument for no digits, an odd number of them, or another
  /// character; the message does not repeat the text.
  static JobToken from_hex(const std::string& digits);

  /// The secret as hexadecimal digits, two a byte.
  std::string hex() const;

  Tag tag(std::span<const uint8_t> message) const;
  /// True if `tag` is that of `message`. Takes the same time wherever a wrong tag differs.
  bool verify(std::span<const uint8_t> message, std::span<const uint8_t> tag) const;

 private:
  explicit JobToken(std::vector<uint8_t> secret);

  std::vector<uint8_t> secret_;
};

}  // namespace lockstep
