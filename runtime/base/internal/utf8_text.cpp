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

/// `character` is one whole character. U+0080 to U+009F are control characters, like U+0000 to U+001F.
bool is_control(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  return first < 0x20 || first == 0x7F || (first == 0xC2 && static_cast<uint8_t>(character[1]) < 0xA0);
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
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_character_length(text);
    const std::string_view character = text.substr(0, std::max<size_t>(length, 1));
    result += length == 0 || is_control(character) ? "?" : character;
    text.remove_prefix(character.size());
  }
  return result;
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
