#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "lockstep/datasets/files/internal/file_descriptor.h"

namespace lockstep {

/// A file that is written under another name and gets its own by commit(), so that nobody sees a part of it.
/// Until then, only this user can open it.
/// Functions throw std::system_error naming the file if the system refuses, for instance because the disk is
/// full. Not thread-safe.
class NewFile {
 public:
  /// Begins a file that will be named `path`. If `is_sole` is true, the caller makes sure that nobody else
  /// writes it now: a part that a killed process left behind is overwritten.
  NewFile(std::string path, bool is_sole);
  /// Writes into `part`, which `file` has opened.
  NewFile(std::string path, std::string part, FileDescriptor file, bool is_sole);
  /// Removes the file unless it was committed.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void append(std::string_view bytes);
  /// Replaces bytes that were appended before.
  void overwrite(uint64_t offset, std::string_view bytes);
  /// Blocks until the bytes are on the disk, then moves the file to its name.
  void commit();

  uint64_t size() const { return size_; }
  bool is_sole() const { return is_sole_; }

 private:
  void write_at(uint64_t offset, std::string_view bytes);

  std::string path_;
  std::string part_;
  FileDescriptor file_;
  bool is_sole_;
  uint64_t size_ = 0;
};

/// How to build a file that several processes need at the same time.
struct CacheBuild {
  /// Returns whether the file is there and can be used.
  std::function<bool()> is_ready;
  /// Writes the file. The caller commits it.
  std::function<void(NewFile&)> write;
  /// Called once if another process builds the file now.
  std::function<void()> on_wait;
};

/// Builds the file `path` unless it is ready. One process builds it; others that call this meanwhile wait. If
/// the builder is killed, the next process builds the file from the beginning, and if the builder writes
/// nothing for five minutes, the others do so, too. Without file locks, as on some network file systems, each
/// process builds the file, and the last one's counts.
///
/// Throws std::system_error naming the file if it cannot be written, and what `write` throws.
void build_cache_file(const std::string& path, const CacheBuild& build);

}  // namespace lockstep
