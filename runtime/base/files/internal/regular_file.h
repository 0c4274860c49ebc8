#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace lockstep {

/// Whether a path's last part may be a symbolic link.
enum class Links { kFollowed, kRefused };

/// Something other than a file of bytes has the name of a file. The message is
/// "<path>: expected a regular file, but it is a named pipe".
class NotARegularFile : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A regular file that is open for reading. Opening it never waits: a named pipe without a writer, a socket
/// or a device is refused. Functions throw std::system_error naming the file if the system refuses.
class RegularFile {
 public:
  /// Throws NotARegularFile if `path` is anything but a regular file, or a link to one that may be followed.
  explicit RegularFile(std::string path, Links links = Links::kFollowed);
  ~RegularFile();
  RegularFile(RegularFile&& other) noexcept;
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;
  RegularFile& operator=(RegularFile&&) = delete;

  const std::string& path() const { return path_; }
  /// Returns the size in bytes at the time the file was opened.
  uint64_t size() const { return size_; }
  /// Reads up to `count` bytes at `offset`; fewer only at the file's end. Returns their number. Thread-safe.
  size_t read_at(uint64_t offset, void* bytes, size_t count) const;
  /// Returns the first bytes of the file, at most `max_bytes`.
  std::string read_start(size_t max_bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

/// Reads a file line by line in a fixed amount of memory, however long its lines are. Not thread-safe.
///
///     LineReader lines(file, 1 << 20);
///     while (lines.next()) use(lines.line());
class LineReader {
 public:
  /// Keeps at most `longest` bytes of a line. `file` must outlive this object.
  LineReader(const RegularFile& file, size_t longest) : file_(file), longest_(longest) {}

  /// Reads the next line. Returns false at the end of the file.
  bool next();
  /// Returns the line without its end; its beginning if it is longer than allowed.
  const std::string& line() const { return line_; }
  /// Returns whether the line had more bytes than were kept.
  bool is_cut() const { return is_cut_; }
  /// Returns whether a line end followed. The last line of a process that was killed may have none.
  bool is_whole() const { return is_whole_; }

 private:
  bool fill();

  const RegularFile& file_;
  const size_t longest_;
  uint64_t offset_ = 0;
  std::string buffer_;
  size_t next_ = 0;  // in buffer_
  std::string line_;
  bool is_cut_ = false;
  bool is_whole_ = false;
};

}  // namespace lockstep
