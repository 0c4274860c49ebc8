#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// A new file that grows at its end. Bytes that append() was given have reached the system when it returns,
/// so a process that is killed later does not lose them. Not thread-safe.
///
/// Example:
///
///     OutputFile file("metrics.jsonl.new");
///     file.append("{\"step\": 1}\n");
///     file.move_to("metrics.jsonl");
class OutputFile {
 public:
  /// Creates the file, which must not exist yet. Throws std::system_error naming it if that fails.
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Appends all of `bytes` or nothing. If they cannot be written, for example because the disk is full, it
  /// cuts the file back to its previous size and throws std::system_error naming it. A later call may
  /// succeed.
  void append(std::span<const uint8_t> bytes);
  void append(std::string_view text);

  /// Renames the file to `path` and replaces any file there: readers see either the old file or this one,
  /// complete. Throws std::system_error naming `path` if that fails.
  void move_to(const std::string& path);

  const std::string& path() const { return path_; }

 private:
  void close();

  std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

/// Returns a name in the folder of `path` that no other call returns, for a file that replaces `path` later.
std::string name_beside(const std::string& path);

/// Replaces the content of `path`, or creates it: readers see either the old content or the new one,
/// complete. Throws std::system_error naming `path`, which is then unchanged.
void replace_file(const std::string& path, std::string_view text);

}  // namespace lockstep
