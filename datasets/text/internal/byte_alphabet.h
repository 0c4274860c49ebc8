#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// The alphabet in which byte-level vocabularies are written, so that each token is printable text: GPT-2's
/// bytes_to_unicode(). A printable byte of Latin-1 is the character of that number; the other 68 bytes are,
/// in their order, the characters from U+0100 on.

/// Returns the character that stands for a byte.
char32_t character_of_byte(uint8_t byte);

/// Returns the bytes that a token of a vocabulary stands for, or nothing if one of its characters is not in
/// the alphabet. The token is valid UTF-8.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace lockstep
