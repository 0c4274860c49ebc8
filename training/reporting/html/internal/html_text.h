#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// `text` as HTML and SVG hold it, in elements and in quoted attributes. What is no UTF-8 and what XML does
/// not allow becomes U+FFFD.
std::string escape_html(std::string_view text);

/// RFC 4648, with padding.
std::string base64(std::span<const uint8_t> bytes);

struct HtmlColumn {
  std::string name;
  bool is_number = false;  ///< digits of its cells stand below each other
};

/// All texts are escaped. Rows have a cell a column; those named in `marked_rows` are printed bold.
struct HtmlTable {
  std::vector<HtmlColumn> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<size_t> marked_rows = {};
};

/// Scrolls sideways where it is too wide. Throws InvalidArgument for a row with another number of cells.
std::string html_table(const HtmlTable& table);

}  // namespace lockstep
