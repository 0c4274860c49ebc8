#pragma once

#include <arrow/io/type_fwd.h>

#include <memory>
#include <string>

#include "lockstep/datasets/stores/read_times.h"

namespace lockstep {

/// A local file, or one of a store, of the version that it has when this object is made. Thread-safe.
class ArrowSource {
 public:
  virtual ~ArrowSource() = default;

  /// Returns the path, or the URI without credentials.
  virtual const std::string& name() const = 0;
  virtual int64_t size() const = 0;
  /// Returns whether each read is a request to a store.
  virtual bool is_stored() const = 0;
  /// Opens the file for one reader. Throws DataError naming the file if it cannot be opened, or is another
  /// version.
  virtual std::shared_ptr<arrow::io::RandomAccessFile> open() const = 0;
  /// Returns the text for an error that a reader met.
  virtual std::string explained(const std::string& reason) const = 0;
};

/// Adds the times of reading to `times` unless it is null. Throws DataError naming the file if it cannot be
/// opened.
std::unique_ptr<const ArrowSource> open_source(const std::string& path, int store_attempts,
                                               std::shared_ptr<ReadTimes> times = nullptr);

}  // namespace lockstep
