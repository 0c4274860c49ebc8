#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// Returns the length of the longest start of `text` that is valid UTF-8.
size_t valid_utf8_prefix(std::string_view text);

/// Returns the number of bytes of the character that begins with `first`, in valid UTF-8.
constexpr size_t utf8_length(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// Returns the character at the start of `text`, which is valid UTF-8 and not empty.
char32_t first_character(std::string_view text);

/// Returns the last character of `text`, which is valid UTF-8 and not empty.
std::string_view last_character(std::string_view text);

/// Returns whether a character has Unicode's property White_Space.
bool is_white_space(char32_t character);

/// Appends a character as UTF-8.
void append_utf8(char32_t character, std::string& text);

}  // namespace lockstep
