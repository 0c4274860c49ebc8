#include "lockstep/runtime/base/internal/utf8_text.h"

#include <algorithm>
#include <cstdint>

namespace lockstep {
namespace {

constexpr const char* kEllipsis = "\u2026";

bool continues_character(char byte) {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

/// Number of bytes in the first `count` characters.
size_t bytes_of_characters(std::string_view text, size_t count) {
  size_t end = 0;
  for (size_t characters = 0; end < text.size(); ++end) {
    if (!continues_character(text[end]) && characters++ == count) break;
  }
  return end;
}

std::string hexadecimal(uint32_t value, int num_digits) {
  std::string text;
  for (int shift = 4 * (num_digits - 1); shift >= 0; shift -= 4)
    text += "0123456789abcdef"[(value >> shift) & 0xF];
  return text;
}

std::string shown_byte(char byte) {
  return "\\x" + hexadecimal(static_cast<uint8_t>(byte), 2);
}

/// Returns the code point of a character of two or three bytes.
uint32_t code_point(std::string_view character) {
  uint32_t value = static_cast<uint8_t>(character[0]) & (character.size() == 2 ? 0x1F : 0x0F);
  for (const char byte : character.substr(1)) value = value << 6 | (static_cast<uint8_t>(byte) & 0x3F);
  return value;
}

/// Terminals obey U+0080 to U+009F as they obey U+0000 to U+001F. The other ones reorder the text around
/// them, so that a name reads as another one.
bool steers_terminal(uint32_t code_point) {
  return (code_point >= 0x80 && code_point <= 0x9F) || (code_point >= 0x202A && code_point <= 0x202E) ||
         (code_point >= 0x2066 && code_point <= 0x2069);
}

/// `character` is one whole character, or a byte that is no part of one.
std::string shown_character(std::string_view character, bool is_valid) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (!is_valid || first < 0x20 || first == 0x7F) return shown_byte(character[0]);
  if (character.size() == 2 || character.size() == 3) {
    const uint32_t value = code_point(character);
    if (steers_terminal(value)) return "\\u" + hexadecimal(value, 4);
  }
  return std::string(character);
}

std::string shown(std::string_view text, std::string_view kept) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_character_length(text);
    const std::string_view character = text.substr(0, std::max<size_t>(length, 1));
    if (kept.find(character[0]) != std::string_view::npos) {
      result += character;
    } else {
      result += shown_character(character, length > 0);
    }
    text.remove_prefix(character.size());
  }
  return result;
}

}  // namespace

size_t utf8_character_length(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!continues_character(text[i])) return 0;
  }
  // Overlong encodings, surrogates, and values beyond the last character.
  const auto second = static_cast<uint8_t>(text[1]);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  return length;
}

std::string printable(std::string_view text) {
  return shown(text, "");
}

std::string printable_lines(std::string_view text) {
  return shown(text, "\n\t");
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues_character(c); }));
}

std::string shortened(const std::string& text, size_t longest) {
  if (count_characters(text) <= longest) return text;
  return text.substr(0, bytes_of_characters(text, longest - 1)) + kEllipsis;
}

std::string shortened_in_the_middle(const std::string& text, size_t longest) {
  const size_t count = count_characters(text);
  if (count <= longest) return text;
  const size_t num_last = (longest - 1) / 2;
  return text.substr(0, bytes_of_characters(text, longest - 1 - num_last)) + kEllipsis +
         text.substr(bytes_of_characters(text, count - num_last));
}

}  // namespace lockstep
