#pragma once

#include <arrow/filesystem/filesystem.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include <memory>
#include <string>

#include "lockstep/datasets/stores/internal/data_uri.h"
#include "lockstep/datasets/stores/internal/read_error.h"

namespace lockstep {

/// An object store, or a distributed file system, that Arrow reads. Thread-safe.
class ArrowStore {
 public:
  /// Connects to the store of the URI, or shares an open connection of this process. Throws DataError naming
  /// the URI if that fails. A request is sent at most `attempts` times.
  ArrowStore(DataUri uri, int attempts);

  arrow::fs::FileSystem& files() const { return *files_; }
  /// Returns the name that files() has for a path of the URI.
  std::string file_of(const std::string& path) const;
  /// Returns the path of the URI for a name that files() has.
  std::string path_of(const std::string& file) const;
  const DataUri& uri() const { return uri_; }
  /// Returns the reason of an error in one line without credentials, and says so if the store refused them.
  std::string explained(const std::string& reason) const;

  template <typename T>
  T value_or_throw(const std::string& place, arrow::Result<T> result) const {
    if (!result.ok()) throw ReadError(place + ": " + explained(result.status().message()));
    return std::move(result).ValueUnsafe();
  }

 private:
  DataUri uri_;
  std::shared_ptr<arrow::fs::FileSystem> files_;
};

}  // namespace lockstep
