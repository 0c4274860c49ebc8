#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/clicks/click_batch.h"
#include "lockstep/datasets/clicks/click_file.h"

namespace lockstep {

struct ClickFilesOptions {
  /// Files, folders and patterns such as "day_*.gz". A folder stands for the files in it, but not for those
  /// in its subfolders and those whose name begins with "." or "_". The files of a folder or a pattern are
  /// sorted, with numbers in their order: day_2 comes before day_10. A file named twice is taken once.
  std::vector<std::string> paths;
  bool skips_malformed = false;  ///< as in ClickFileOptions, like the next fields
  std::string index_folder{};
  uint64_t save_index_from_bytes = uint64_t{64} << 20;
  std::function<void(const std::string&)> on_message{};
};

/// An indexed dataset of the click logs in several files, one after another. Copies share the open files.
/// get_batch() is thread-safe. Each file is indexed and decompressed as ClickFile says.
///
/// Example:
///
///     ClickFiles clicks({.paths = {"logs/day_*.gz", "logs/extra.tsv"}});
///     auto batches = strategy.distribute_dataset(clicks, {.global_batch_size = 1024, .shuffle_seed = 1});
class ClickFiles {
 public:
  /// Blocks until all files are indexed. Throws DataError as ClickFile(), and naming the path if there is no
  /// such file, the folder has none, or the pattern matches none.
  explicit ClickFiles(const ClickFilesOptions& options);

  std::optional<size_t> size() const { return firsts_.back(); }
  /// Returns the rows in the order of `indices`. Throws as ClickFile::get_batch().
  ClickBatch get_batch(c10::ArrayRef<size_t> indices) const;

  /// Returns a checksum of the labels and categories of up to 256 rows, which it reads. Throws as
  /// get_batch().
  std::string identity() const;

  /// Returns the files in the order of their rows.
  const std::vector<std::string>& paths() const { return paths_; }
  int64_t num_malformed() const;
  /// Returns what is wrong with the first malformed row, with its file and line; empty if there is none.
  std::string first_malformed() const;

 private:
  std::vector<std::string> paths_;
  std::vector<ClickFile> files_;
  std::vector<size_t> firsts_{0};  // the number of each file's first row, and of all rows
};

}  // namespace lockstep
