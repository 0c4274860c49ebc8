#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// A regular file, or what was read of one, that is read at any place. Its functions throw CheckpointError
/// naming the file.
class InputFile {
 public:
  /// Throws where the file is missing, unreadable or no regular file. Does not wait for anybody who writes to
  /// a named pipe.
  explicit InputFile(std::string path);
  /// Reads `bytes`, which outlive it, as the content of the file `path`.
  InputFile(std::string path, std::string_view bytes);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  /// In bytes, as when it was opened.
  uint64_t size() const { return size_; }

  /// Fills `bytes` from `offset` on. Throws where the file ends before. Any number of threads at once.
  void read(uint64_t offset, void* bytes, size_t count) const;

 private:
  [[noreturn]] void throw_system_error(const char* action) const;

  std::string path_;
  int descriptor_ = -1;
  const char* bytes_ = nullptr;  // in the place of a descriptor
  uint64_t size_ = 0;
};

}  // namespace lockstep
