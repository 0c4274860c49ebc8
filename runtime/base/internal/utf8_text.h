#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Bytes of the character at the start of `text`, which is not empty; 0 where that is no UTF-8 (RFC 3629).
size_t utf8_character_length(std::string_view text);

/// `text` for one line of a terminal: each control character, and each byte that is no UTF-8, becomes a
/// question mark.
std::string printable(std::string_view text);

/// A number of characters: bytes that go on with one are not counted.
size_t count_characters(std::string_view text);

/// `text`, or its beginning and an ellipsis where it has more characters than `longest`.
std::string shortened(const std::string& text, size_t longest);
/// The same with the ellipsis in the middle, for names that differ at their end.
std::string shortened_in_the_middle(const std::string& text, size_t longest);

}  // namespace lockstep
