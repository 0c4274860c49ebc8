#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/datasets/clicks/click_batch.h"

namespace lockstep {

struct ClickFileOptions {
  std::string path;
  /// Skips and counts malformed rows; otherwise the first one is an error.
  bool skips_malformed = false;
};

/// An indexed dataset of click logs in a file, which may be larger than memory: rows are read when a batch
/// needs them. Opening reads the file once, to find where its rows begin (4 bytes of memory per row) and
/// which are malformed. Copies share the open file. get_batch() is thread-safe.
///
/// Example:
///
///     ClickFile file({.path = "clicks.tsv", .skips_malformed = true});
///     std::cout << *file.size() << " rows, " << file.num_malformed() << " malformed\n";
class ClickFile {
 public:
  /// Blocks until the file is read. Throws DataError naming the file if it cannot be read or has no row, and
  /// naming the line too if a row is malformed and not skipped.
  explicit ClickFile(const ClickFileOptions& options);

  std::optional<size_t> size() const;
  /// Returns the rows in the order of `indices`, which must be below size(). Throws DataError if the file has
  /// changed since it was opened or can no longer be read.
  ClickBatch get_batch(c10::ArrayRef<size_t> indices) const;

  int64_t num_malformed() const;
  /// Returns what is wrong with the first malformed row, and its line; empty if there is none.
  const std::string& first_malformed() const;

 private:
  class Index;
  std::shared_ptr<const Index> index_;
};

}  // namespace lockstep
