#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/datasets/files/internal/file_descriptor.h"

namespace lockstep {

/// Identifies a version of a file's content, as long as every change also changes the size or the time.
struct FileVersion {
  uint64_t size = 0;
  int64_t modified_ns = 0;  ///< since 1970, in nanoseconds

  bool operator==(const FileVersion&) const = default;
};

/// Returns what is at a path, such as "a folder" or "a named pipe"; "nothing" if it cannot be looked at.
std::string kind_of_file(const std::string& path);

/// A regular file that is open for reading. Functions throw DataError naming the file. Thread-safe.
class OpenFile {
 public:
  /// Opens the file. Never waits: a named pipe, a socket or a device is refused.
  explicit OpenFile(std::string path);

  const std::string& path() const { return path_; }
  /// Returns the version as it is now.
  FileVersion version() const;
  /// Reads up to `size` bytes at `offset`; fewer only at the file's end. Returns their number.
  size_t read_at(uint64_t offset, char* into, size_t size) const;
  int descriptor() const { return file_.get(); }
  /// Returns another descriptor of the file, for libraries that close theirs. Its position is shared.
  int duplicate() const;

 private:
  /// Throws DataError with the reason that errno gives.
  [[noreturn]] void fail(const char* action) const;

  std::string path_;
  FileDescriptor file_;
};

/// The content of a file, mapped into memory and shared with all processes that map it. The file must keep
/// its size while this object lives; a file that is replaced by another one of its name keeps it.
class MappedFile {
 public:
  /// Throws DataError naming the file if the system refuses.
  explicit MappedFile(const OpenFile& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {bytes_, size_}; }
  /// Gives back the memory of pages that were read. They are read again when they are needed.
  void release_pages() const;

 private:
  const char* bytes_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lockstep
