#include "lockstep/datasets/clicks/internal/row_scan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lockstep/datasets/clicks/click_row.h"
#include "lockstep/datasets/files/data_error.h"

namespace lockstep {
namespace {

class RowScanner {
 public:
  explicit RowScanner(const RowScan& scan) : scan_(scan) {}

  ScannedRows run() {
    std::string bytes;        // content of the file from `begin` on
    uint64_t begin = 0;       // offset of `bytes` in the file
    bool is_skipped = false;  // whether the current line is too long
    for (;;) {
      const size_t had = bytes.size();
      bytes.resize(had + scan_.bytes_at_once);
      bytes.resize(had + scan_.read(bytes.data() + had, scan_.bytes_at_once));
      const bool is_end = bytes.size() < had + scan_.bytes_at_once;
      size_t at = 0;
      for (size_t end = 0; at < bytes.size(); at = end + 1) {
        end = bytes.find('\n', at);
        if (end == std::string::npos && !is_end) break;
        end = std::min(end, bytes.size());
        if (!std::exchange(is_skipped, false))
          note_line(begin + at, std::string_view(bytes).substr(at, end - at));
      }
      at = std::min(at, bytes.size());
      if (is_end) {
        found_.num_bytes = begin + bytes.size();
        return std::move(found_);
      }
      if (bytes.size() - at > kLongestClickLine) {  // drop the line
        if (!is_skipped) note_line(begin + at, std::string_view(bytes).substr(at));
        is_skipped = true;
        at = bytes.size();
      }
      bytes.erase(0, at);
      begin += at;
    }
  }

 private:
  void note_line(uint64_t offset, std::string_view line) {
    ++num_lines_;
    const auto error =
        line.size() > kLongestClickLine
            ? std::optional<std::string>("expected a line of click logs, but got one of more than " +
                                         std::to_string(kLongestClickLine) + " bytes")
            : parse_click_row(without_carriage_return(line), row_);
    if (!error) return scan_.on_row(offset);
    const std::string text = "line " + std::to_string(num_lines_) + ": " + *error;
    if (!scan_.skips_malformed) throw DataError(scan_.file + ": " + text);
    if (found_.num_malformed++ == 0) found_.first_malformed = text;
  }

  const RowScan& scan_;
  ScannedRows found_;
  int64_t num_lines_ = 0;
  ClickRow row_;
};

}  // namespace

std::string_view without_carriage_return(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

ScannedRows scan_click_rows(const RowScan& scan) {
  return RowScanner(scan).run();
}

}  // namespace lockstep
