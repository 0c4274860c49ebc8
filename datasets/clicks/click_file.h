#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/clicks/click_batch.h"
#include "lockstep/datasets/clicks/click_file_options.h"

namespace lockstep {

class IndexedRows;

/// An indexed dataset of click logs in a file, which may be larger than memory: rows are read when a batch
/// needs them. Copies share the open file. get_batch() is thread-safe.
///
/// To find its rows, the file is read once. The index (4 bytes per row) is saved and later mapped into
/// memory, so that the next start opens the file at once and all processes on a machine share the memory. It
/// is built again if the size or the modification time of the file has changed, or if the index is damaged.
/// If several processes open a new file, one of them builds the index and the others wait.
///
/// The file may be compressed by gzip or zstd. Since rows are needed in any order, it is then decompressed
/// once, into a copy next to the index: make sure that the folder has room for it. You may delete the index
/// and the copy whenever no process uses them.
///
/// Example:
///
///     ClickFile file({.path = "clicks.tsv", .skips_malformed = true});
///     std::cout << *file.size() << " rows, " << file.num_malformed() << " malformed\n";
class ClickFile {
 public:
  /// Blocks until the file is indexed. Throws DataError naming the file if it cannot be read, has no row, is
  /// damaged or cannot be decompressed, for instance because the disk is full; and naming the line too if a
  /// row is malformed and not skipped.
  explicit ClickFile(const ClickFileOptions& options);

  std::optional<size_t> size() const;
  /// Returns the rows in the order of `indices`. Throws std::invalid_argument if an index is not below
  /// size(), and DataError if the file has changed since it was opened or can no longer be read.
  ClickBatch get_batch(c10::ArrayRef<size_t> indices) const;
  /// Appends rows `first` to `first` + `count` - 1 to `rows`. Thread-safe. Throws as get_batch().
  void read_rows(size_t first, size_t count, std::vector<ClickRow>& rows) const;

  int64_t num_malformed() const;
  /// Returns what is wrong with the first malformed row, and its line; empty if there is none.
  const std::string& first_malformed() const;

 private:
  std::shared_ptr<const IndexedRows> rows_;
};

}  // namespace lockstep
