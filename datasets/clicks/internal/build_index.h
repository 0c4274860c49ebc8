#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lockstep/datasets/clicks/click_file_options.h"
#include "lockstep/datasets/clicks/internal/row_index.h"
#include "lockstep/datasets/files/internal/cache_file.h"

namespace lockstep {

/// Decides what to do with the bytes of the rows while they are read, and returns the version of the file
/// that holds them.
struct RowsCopy {
  std::function<void(std::string_view)> append;
  std::function<FileVersion()> finish;
};

/// Reads the file of `options` once, and writes the index of its rows. Returns the index's header. `source`
/// is the file's version when it was opened. Without functions in `copy`, the file itself holds the rows.
/// Throws DataError naming the file if it has no row, if a row is malformed and not skipped, and if the file
/// changes meanwhile; and what the writer and the copy throw.
std::string write_index(const ClickFileOptions& options, const FileVersion& source, const RowsCopy& copy,
                        RowIndexWriter& writer);

/// Writes a whole index into `index`, and if `rows_path` is not empty, the decompressed rows into that file.
/// Throws DataError as write_index() does, and std::system_error naming the file if the index or the rows
/// cannot be written, for instance because the disk is full.
void build_index(const ClickFileOptions& options, const FileVersion& source, const std::string& rows_path,
                 NewFile& index);

}  // namespace lockstep
