#include "lockstep/training/reporting/html/internal/html_text.h"

#include <algorithm>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/utf8_text.h"

namespace lockstep {
namespace {

constexpr const char* kReplacement = "\uFFFD";

std::string escaped_character(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      break;
  }
  const bool is_control = static_cast<uint8_t>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r';
  return is_control || c == 0x7F ? kReplacement : std::string(1, c);
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_character_length(text);
    if (length > 1) {
      escaped += text.substr(0, length);
    } else {
      escaped += length == 0 ? kReplacement : escaped_character(text[0]);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return escaped;
}

std::string capitalized(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string base64(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < count ? bytes[i + k] : 0U);
    for (size_t digit = 0; digit < 4; ++digit) {
      text += digit <= count ? kDigits[bits >> (18 - 6 * digit) & 63] : '=';
    }
  }
  return text;
}

std::string html_table(const HtmlTable& table) {
  const auto cell = [&](const std::string& element, size_t column, const std::string& text) {
    const std::string type = table.columns[column].is_number ? " class=\"number\"" : "";
    return "<" + element + type + ">" + escape_html(text) + "</" + element + ">";
  };
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (size_t column = 0; column < table.columns.size(); ++column) {
    html += cell("th", column, table.columns[column].name);
  }
  html += "</tr></thead><tbody>\n";
  for (size_t row = 0; row < table.rows.size(); ++row) {
    const auto& cells = table.rows[row];
    if (cells.size() != table.columns.size()) {
      throw InvalidArgument("[html_table] expected " + std::to_string(table.columns.size()) +
                            " cells a row, but got " + std::to_string(cells.size()));
    }
    const bool is_marked =
        std::find(table.marked_rows.begin(), table.marked_rows.end(), row) != table.marked_rows.end();
    html += is_marked ? "<tr class=\"marked\">" : "<tr>";
    for (size_t column = 0; column < cells.size(); ++column) html += cell("td", column, cells[column]);
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace lockstep
