#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/datasets/clicks/click_row.h"
#include "lockstep/datasets/files/internal/byte_source.h"

namespace lockstep::apps {

/// Some lines of a file.
struct LineBlock {
  std::string text;        ///< whole lines; a line of more than 64 KiB is cut off
  int64_t first_line = 1;  ///< counted from 1
  int64_t num_lines = 0;
};

/// Reads a file, which may be compressed, in blocks of lines. Not thread-safe.
class LineReader {
 public:
  /// Throws DataError naming the file if it cannot be opened.
  explicit LineReader(const std::string& path);

  /// Returns the next lines, at most `most`; none at the end. Throws DataError naming the file if it is
  /// damaged.
  LineBlock next(int64_t most);

 private:
  bool read_more();

  std::unique_ptr<ByteSource> source_;
  std::string pending_;  // bytes that no block has had
  bool is_at_end_ = false;
  bool is_cut_off_ = false;  // the rest of the current line is left out
  int64_t num_lines_ = 0;    // that blocks have had
};

/// The rows of a block of lines.
struct ParsedLines {
  std::vector<ClickRow> rows;
  int64_t num_malformed = 0;
  std::string first_malformed = {};  ///< line and problem
  /// Lines that the way back spells differently: with leading zeros, upper-case digits, "\r\n", or no line
  /// break at the end of the file.
  int64_t num_respelled = 0;
  int64_t first_respelled = 0;  ///< its line
};

/// Parses lines of click logs. Throws DataError naming file and line if one is malformed and not skipped.
ParsedLines parse_click_lines(const std::string& file, const LineBlock& block, bool skips_malformed);

/// Returns whether click_row_text() of a well-formed line is the line itself.
bool is_spelled_as_written(std::string_view line);

}  // namespace lockstep::apps
