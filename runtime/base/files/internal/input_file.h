#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/runtime/base/files/internal/regular_file.h"

namespace lockstep {

/// A regular file, or bytes already read from one, with random access. Functions throw CheckpointError naming
/// the file.
class InputFile {
 public:
  /// Opens the file. Throws if it is missing, unreadable or not a regular file. Does not block on a named
  /// pipe.
  explicit InputFile(std::string path);
  /// Uses `bytes` as the content of the file `path`. `bytes` must outlive this object.
  InputFile(std::string path, std::string_view bytes);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  /// Returns the size in bytes at the time the file was opened.
  uint64_t size() const { return size_; }

  /// Reads `count` bytes at `offset` into `bytes`. Throws if the file ends before that. Thread-safe.
  void read(uint64_t offset, void* bytes, size_t count) const;

 private:
  std::string path_;
  std::optional<RegularFile> file_;
  const char* bytes_ = nullptr;  // used instead of a file
  uint64_t size_ = 0;
};

}  // namespace lockstep
