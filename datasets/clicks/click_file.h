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
  /// Malformed rows are left out, and counted; else the first one is an error.
  bool skips_malformed = false;
};

/// Click logs in a file, as an indexed dataset: it may be larger than the memory, and is read where a batch
/// needs it. Opening it reads it once, to find where its rows begin, 4 bytes of memory a row, and which are
/// malformed. Copies read the same open file. get_batch() is safe to call from several threads.
class ClickFile {
 public:
  /// Blocks. Throws DataError naming the file where it cannot be read or has no row, and with the number of
  /// the line for a malformed row.
  explicit ClickFile(const ClickFileOptions& options);

  std::optional<size_t> size() const;
  /// The rows in the order that is asked for. Throws DataError where the file has changed since it was
  /// opened, or cannot be read any more.
  ClickBatch get_batch(c10::ArrayRef<size_t> indices) const;

  int64_t num_malformed() const;
  /// Says of the first malformed row what is wrong with it, and in which line; empty where there is none.
  const std::string& first_malformed() const;

 private:
  class Index;
  std::shared_ptr<const Index> index_;
};

}  // namespace lockstep
