#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

/// A file that is written beside its path and takes its place by commit(): a reader finds the old file or the
/// whole new one, and a failure leaves the old one. What was not committed is removed with the object.
///
/// Its functions throw std::system_error naming the file where the system refuses: no such folder, no
/// permission, no space left.
class ReplacedFile {
 public:
  /// Opens the new file, in the folder of `path`. Throws InvalidArgument where `path` is there and no regular
  /// file, such as a folder or a device.
  explicit ReplacedFile(std::string path);
  ~ReplacedFile();
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  /// Appends.
  void write(const void* bytes, size_t count);

  /// Waits until the bytes have reached the disk, then puts the file into its place. Nothing can be written
  /// afterwards.
  void commit();

 private:
  [[noreturn]] void throw_system_error(const char* action) const;
  void close_quietly();

  std::string path_;
  std::string partial_path_;
  int descriptor_ = -1;
};

}  // namespace lockstep
