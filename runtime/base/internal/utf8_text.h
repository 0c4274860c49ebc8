#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Returns the number of bytes of the character at the start of `text`, which must not be empty; 0 if it is
/// not valid UTF-8 (RFC 3629).
size_t utf8_character_length(std::string_view text);

/// Returns `text` fit for one line of a terminal. Characters that could steer the terminal or hide other text
/// become visible: control characters and bytes that are not valid UTF-8 as \x1b, and characters that change
/// the direction of text as \u202e.
std::string printable(std::string_view text);
/// Like printable(), but for text of several lines: line ends and tabs stay as they are.
std::string printable_lines(std::string_view text);

/// Returns the number of characters; UTF-8 continuation bytes are not counted.
size_t count_characters(std::string_view text);

/// Returns `text`, or its beginning and an ellipsis if it has more than `longest` characters.
std::string shortened(const std::string& text, size_t longest);
/// Like shortened(), but with the ellipsis in the middle, for names that differ at their end.
std::string shortened_in_the_middle(const std::string& text, size_t longest);

}  // namespace lockstep
