#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/datasets/clicks/click_file_options.h"
#include "lockstep/datasets/clicks/click_row.h"
#include "lockstep/datasets/clicks/internal/row_index.h"
#include "lockstep/datasets/files/internal/open_file.h"

namespace lockstep {

/// An open file of click logs with the index of its rows. Thread-safe.
class IndexedRows {
 public:
  /// Opens the file. Blocks while the index is built, in this process or another one, unless a valid index is
  /// found. Throws DataError as ClickFile() does.
  explicit IndexedRows(const ClickFileOptions& options);

  size_t size() const { return index_.num_rows(); }
  const RowIndexFacts& facts() const { return index_.facts(); }

  /// Appends rows `first` to `first` + `count` - 1, which must be there. Throws DataError if the file has
  /// changed since it was opened or can no longer be read.
  void read(size_t first, size_t count, std::vector<ClickRow>& rows) const;

 private:
  bool try_open(const std::string& index_path, const std::string& rows_path, const FileVersion& source);
  void open_cached(const ClickFileOptions& options, bool is_compressed, const FileVersion& source);
  void index_in_memory(const ClickFileOptions& options, const FileVersion& source);
  void read_at_once(const RowIndex::Range& range, size_t first, size_t count,
                    std::vector<ClickRow>& rows) const;
  [[noreturn]] void fail_changed() const;

  std::string path_;
  std::unique_ptr<const OpenFile> file_;      // with the rows
  std::unique_ptr<const MappedFile> mapped_;  // the index, if it is a file
  std::string bytes_;                         // the index, if it is not
  RowIndex index_;
};

}  // namespace lockstep
