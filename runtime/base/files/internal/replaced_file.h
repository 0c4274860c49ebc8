#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

/// A file that is written next to `path` and replaces it on commit(). Readers see either the old file or the
/// complete new one; a failure leaves the old file in place. The destructor removes a file that was not
/// committed.
///
/// Functions throw std::system_error naming the file if the system reports an error, such as a missing
/// folder, no permission or a full disk.
class ReplacedFile {
 public:
  /// Opens the new file in the folder of `path`. Throws InvalidArgument if `path` exists and is not a regular
  /// file.
  explicit ReplacedFile(std::string path);
  ~ReplacedFile();
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  /// Appends bytes.
  void write(const void* bytes, size_t count);

  /// Blocks until the bytes are on disk, then moves the file to `path`. Nothing can be written afterwards.
  void commit();

 private:
  [[noreturn]] void throw_system_error(const char* action) const;
  void close_quietly();

  std::string path_;
  std::string partial_path_;
  int descriptor_ = -1;
};

}  // namespace lockstep
