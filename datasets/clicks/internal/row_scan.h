#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

/// A line longer than this cannot be a row: Criteo's have about 250 bytes.
inline constexpr size_t kLongestClickLine = size_t{1} << 16;

/// Returns the line without the "\r" of a "\r\n" line break.
std::string_view without_carriage_return(std::string_view line);

struct RowScan {
  std::string file;  ///< name in errors
  bool skips_malformed = false;
  /// Reads the next bytes; fewer than asked for only at the end.
  std::function<size_t(char* into, size_t size)> read;
  /// Called with the offset of each well-formed row, in order.
  std::function<void(uint64_t offset)> on_row;
  size_t bytes_at_once = size_t{4} << 20;  ///< number of bytes that one call of `read` asks for
};

/// Result of a scan.
struct ScannedRows {
  uint64_t num_bytes = 0;
  int64_t num_malformed = 0;
  /// Line and problem of the first malformed row; empty if there is none.
  std::string first_malformed;
};

/// Reads click logs from the beginning to the end and finds their rows. Throws DataError naming file and line
/// if a row is malformed and not skipped, and what `read` and `on_row` throw.
ScannedRows scan_click_rows(const RowScan& scan);

}  // namespace lockstep
