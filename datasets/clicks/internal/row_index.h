#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/datasets/files/internal/open_file.h"

namespace lockstep {

// An index of rows: where each row of a file begins. A header of 96 bytes, the rows' offsets in chunks of
// 4096 rows (the first one's offset in 8 bytes, then for each row 4 bytes relative to it), and a text.

/// The facts that an index records about its file.
struct RowIndexFacts {
  FileVersion source;  ///< the file as users name it
  FileVersion rows;    ///< the file with the rows: the same one, or its decompressed copy
  int64_t num_malformed = 0;
  std::string first_malformed;  ///< empty if there is none

  bool operator==(const RowIndexFacts&) const = default;
};

/// Writes an index piece by piece, so that it need not fit into memory.
class RowIndexWriter {
 public:
  /// `append` receives the index but for its header, which header() returns at the end: until that replaces
  /// the zeros in its place, nobody takes the bytes for an index.
  explicit RowIndexWriter(std::function<void(std::string_view)> append);

  /// Adds a row, which must begin after the last one. Throws DataError naming `file` if more than 4 GiB have
  /// hardly any row.
  void add(uint64_t offset, const std::string& file);
  /// Writes the rest and returns the header.
  std::string finish(const RowIndexFacts& facts);
  uint64_t num_rows() const { return num_rows_; }

 private:
  void put(const void* bytes, size_t size);
  void flush();

  const std::function<void(std::string_view)> append_;
  std::string buffer_;
  uint64_t chunk_ = 0;  // offset of the current chunk's first row
  uint64_t num_rows_ = 0;
  uint32_t checksum_ = 0;
};

/// An index in memory that somebody else owns. Believes nothing that was not checked. Thread-safe.
class RowIndex {
 public:
  /// Returns the index in `bytes` of the file whose version is `source`. Returns nothing if it is of another
  /// version of the file or of the format, damaged, or cut short. Reads all bytes, to compare their checksum.
  static std::optional<RowIndex> parse(std::string_view bytes, const FileVersion& source);

  uint64_t num_rows() const { return num_rows_; }
  const RowIndexFacts& facts() const { return facts_; }

  /// A part of the file.
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  /// Returns the part from the beginning of row `first` to that of row `first` + `count`, or to the end of
  /// the file; nothing if the index has no such part within the file. `first` + `count` must be at most
  /// num_rows().
  std::optional<Range> range(uint64_t first, uint64_t count) const;
  uint64_t offset(uint64_t row) const;

 private:
  const char* chunks_ = nullptr;
  uint64_t num_rows_ = 0;
  RowIndexFacts facts_;
};

}  // namespace lockstep
