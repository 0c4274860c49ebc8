#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace lockstep::measurement {

/// Returns the number with as many digits after the point.
std::string fixed(double value, int digits);

/// A table of text, printed as Markdown with aligned columns.
class MarkdownTable {
 public:
  explicit MarkdownTable(std::vector<std::string> header);

  /// Adds a row. Throws std::invalid_argument if it does not have as many cells as the header.
  void add_row(std::vector<std::string> cells);
  bool empty() const { return rows_.size() == 1; }

  friend std::ostream& operator<<(std::ostream& stream, const MarkdownTable& table);

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
};

}  // namespace lockstep::measurement
