#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>

#include "lockstep/datasets/files/internal/open_file.h"

namespace lockstep {

/// Keeps the files open that were used last, up to a limit, which data sets of thousands of files exceed.
/// Thread-safe.
///
/// Example:
///
///     OpenFilePool pool(64);
///     std::weak_ptr<const OpenFile> kept = pool.used(std::make_shared<const OpenFile>("clicks.parquet"));
class OpenFilePool {
 public:
  using File = std::shared_ptr<const OpenFile>;

  explicit OpenFilePool(size_t most) : most_(most) {}

  /// Keeps the file, which may be kept already, and lets go of the one that was not used for longest if there
  /// are too many. Returns the file.
  File used(File file);
  /// Lets go of the file if it is kept.
  void drop(const File& file);
  /// Returns how many files are kept.
  size_t size() const;

 private:
  const size_t most_;
  mutable std::mutex mutex_;
  std::list<File> files_;  // guarded by mutex_; the one that was used last comes first
};

}  // namespace lockstep
