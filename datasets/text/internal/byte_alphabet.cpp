#include "lockstep/datasets/text/internal/byte_alphabet.h"

#include <array>

#include "lockstep/datasets/text/internal/utf8.h"

namespace lockstep {
namespace {

constexpr size_t kNumBytes = 256;
constexpr size_t kNumCharacters = kNumBytes + 68;

constexpr bool is_printable(size_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, kNumBytes> make_characters() {
  std::array<char32_t, kNumBytes> characters{};
  char32_t next = kNumBytes;
  for (size_t byte = 0; byte < kNumBytes; ++byte)
    characters[byte] = is_printable(byte) ? static_cast<char32_t>(byte) : next++;
  return characters;
}

constexpr std::array<char32_t, kNumBytes> kCharacters = make_characters();

/// The byte of each character, or -1.
constexpr std::array<int16_t, kNumCharacters> make_bytes() {
  std::array<int16_t, kNumCharacters> bytes{};
  bytes.fill(-1);
  for (size_t byte = 0; byte < kNumBytes; ++byte) bytes[kCharacters[byte]] = static_cast<int16_t>(byte);
  return bytes;
}

constexpr std::array<int16_t, kNumCharacters> kBytes = make_bytes();

}  // namespace

char32_t character_of_byte(uint8_t byte) {
  return kCharacters[byte];
}

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  while (!token.empty()) {
    const char32_t character = first_character(token);
    if (character >= kNumCharacters || kBytes[character] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[character]));
    token.remove_prefix(utf8_length(token.front()));
  }
  return bytes;
}

}  // namespace lockstep
