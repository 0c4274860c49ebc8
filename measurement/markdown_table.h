#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace lockstep::measurement {

/// Rows of text, printed as a Markdown table with aligned columns.
class MarkdownTable {
 public:
  explicit MarkdownTable(std::vector<std::string> header);

  /// Throws std::invalid_argument where the number of cells is not the header's.
  void add_row(std::vector<std::string> cells);
  bool empty() const { return rows_.size() == 1; }

  friend std::ostream& operator<<(std::ostream& stream, const MarkdownTable& table);

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
};

}  // namespace lockstep::measurement
