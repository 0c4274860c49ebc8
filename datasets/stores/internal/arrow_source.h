#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/datasets/stores/internal/watched_file.h"
#include "lockstep/datasets/stores/read_times.h"

namespace lockstep {

/// A local file, or one of a store, of the version that it has when this object is made. Thread-safe.
class ArrowSource {
 public:
  /// Adds the times of opening and reading to `times` unless it is null.
  explicit ArrowSource(std::shared_ptr<ReadTimes> times) : times_(std::move(times)) {}
  virtual ~ArrowSource() = default;
  ArrowSource(const ArrowSource&) = delete;
  ArrowSource& operator=(const ArrowSource&) = delete;

  /// Returns the path, or the URI without credentials.
  virtual const std::string& name() const = 0;
  virtual int64_t size() const = 0;
  /// Returns whether each read is a request to a store.
  virtual bool is_stored() const = 0;
  /// Opens the file for one reader. Throws ReadError naming the file if it cannot be opened, or is another
  /// version.
  std::shared_ptr<WatchedFile> open() const;
  /// Returns the text for an error that a reader met.
  virtual std::string explained(const std::string& reason) const = 0;

 private:
  virtual std::shared_ptr<arrow::io::RandomAccessFile> open_file() const = 0;

  std::shared_ptr<ReadTimes> times_;
};

/// A process keeps at most this number of local files open between their readers. A file that is not among
/// those used last is opened again for the next reader.
inline constexpr size_t kMostOpenFiles = 64;

/// Adds the times of reading to `times` unless it is null. Throws ReadError naming the file if it cannot be
/// opened.
std::unique_ptr<const ArrowSource> open_source(const std::string& path, int store_attempts,
                                               std::shared_ptr<ReadTimes> times = nullptr);

}  // namespace lockstep
