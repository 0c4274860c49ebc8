#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// A new file that grows at its end. What append() was given is with the system when it returns: a process
/// that is killed later loses nothing of it. Used by one thread at a time.
class OutputFile {
 public:
  /// Creates the file, which must not exist yet. Throws std::system_error that names it where it cannot.
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// All of `bytes` or nothing: where they cannot be written, because the disk is full for one, the file is
  /// cut back to what it held, and std::system_error names it. A later call may succeed.
  void append(std::span<const uint8_t> bytes);
  void append(std::string_view text);

  /// Puts the file into the place of `path`, whether or not there is another one: readers of it see the old
  /// file or this one, whole. Throws std::system_error naming `path` where it cannot.
  void move_to(const std::string& path);

  const std::string& path() const { return path_; }

 private:
  void close();

  std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

/// A name in `path`'s folder that no other call returns, for a file that takes its place later.
std::string name_beside(const std::string& path);

/// Makes `text` the content of `path`, whether or not there is a file: readers see the old content or the new
/// one, whole. Throws std::system_error naming `path`, which then is as before.
void replace_file(const std::string& path, std::string_view text);

}  // namespace lockstep
