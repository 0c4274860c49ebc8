#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Escapes `text` for HTML and SVG, in elements and in quoted attributes. Invalid UTF-8 and characters that
/// XML does not allow become U+FFFD.
std::string escape_html(std::string_view text);

/// Returns the text with a capital letter, if it begins with one of ASCII's.
std::string capitalized(std::string text);

/// Encodes as RFC 4648 says, with padding.
std::string base64(std::span<const uint8_t> bytes);

struct HtmlColumn {
  std::string name;
  bool is_number = false;  ///< aligns the digits of its cells
};

/// A table. All texts are escaped. Each row has one cell per column; rows listed in `marked_rows` are bold.
struct HtmlTable {
  std::vector<HtmlColumn> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<size_t> marked_rows = {};
};

/// Returns the table as HTML; it scrolls sideways if it is too wide. Throws InvalidArgument if a row has
/// another number of cells.
std::string html_table(const HtmlTable& table);

}  // namespace lockstep
