#include "lockstep/measurement/markdown_table.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace lockstep::measurement {

std::string fixed(double value, int digits) {
  const int length = std::snprintf(nullptr, 0, "%.*f", digits, value);
  std::string text(static_cast<size_t>(length), '\0');
  std::snprintf(text.data(), text.size() + 1, "%.*f", digits, value);
  return text;
}

MarkdownTable::MarkdownTable(std::vector<std::string> header) {
  rows_.push_back(std::move(header));
}

void MarkdownTable::add_row(std::vector<std::string> cells) {
  if (cells.size() != rows_[0].size()) {
    throw std::invalid_argument("[MarkdownTable] expected " + std::to_string(rows_[0].size()) +
                                " cells, but got " + std::to_string(cells.size()));
  }
  rows_.push_back(std::move(cells));
}

std::ostream& operator<<(std::ostream& stream, const MarkdownTable& table) {
  std::vector<size_t> widths(table.rows_[0].size(), 3);
  for (const auto& row : table.rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (size_t number = 0; number < table.rows_.size(); ++number) {
    for (size_t i = 0; i < widths.size(); ++i) {
      const std::string& cell = table.rows_[number][i];
      stream << "| " << cell << std::string(widths[i] - cell.size(), ' ') << ' ';
    }
    stream << "|\n";
    if (number > 0) continue;
    for (const size_t width : widths) stream << '|' << std::string(width + 2, '-');
    stream << "|\n";
  }
  return stream;
}

}  // namespace lockstep::measurement
