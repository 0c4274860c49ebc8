#include "lockstep/apps/shared/command_line/aligned_table.h"

#include <algorithm>

#include "lockstep/runtime/base/internal/utf8_text.h"

namespace lockstep::apps {

std::string aligned_table(const TextTable& rows, const ColumnSpan& right_aligned) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], count_characters(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - count_characters(row[i]), ' ');
      const bool is_right_aligned = i >= right_aligned.first && i <= right_aligned.last;
      line += "  " + (is_right_aligned ? space + row[i] : row[i] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace lockstep::apps
