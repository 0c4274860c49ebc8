#include "lockstep/datasets/clicks/click_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {
namespace {

/// Criteo's lines have about 250 bytes; a line longer than this cannot be one of them.
constexpr size_t kLongestLine = size_t{1} << 16;
constexpr size_t kReadBytes = size_t{4} << 20;
/// Maximum number of adjacent rows in one read.
constexpr size_t kRowsAtOnce = 4096;

std::string_view without_carriage_return(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

/// Positions of the well-formed rows.
class ClickFile::Index {
 private:
  class OpenFile {
   public:
    explicit OpenFile(const std::string& path)
        : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
      if (descriptor_ < 0) fail();
      struct stat status {};
      if (fstat(descriptor_, &status) != 0) fail();
      if (!S_ISREG(status.st_mode)) throw DataError(path_ + ": expected a regular file, but it is none");
    }
    ~OpenFile() { close(descriptor_); }
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;

    /// Reads fewer bytes only at the file's end.
    size_t read_at(uint64_t offset, char* into, size_t size) const {
      size_t done = 0;
      while (done < size) {
        const ssize_t got = pread(descriptor_, into + done, size - done, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail();
        if (got == 0) break;
        done += static_cast<size_t>(got);
      }
      return done;
    }

    const std::string& path() const { return path_; }

   private:
    [[noreturn]] void fail() const { throw DataError(path_ + ": " + std::strerror(errno)); }

    const std::string path_;
    const int descriptor_;
  };

 public:
  explicit Index(const ClickFileOptions& options)
      : file_(options.path), skips_malformed_(options.skips_malformed) {
    find_rows();
    if (size_ == 0)
      throw DataError(file_.path() + ": expected rows of click logs, but it has none" +
                      (first_malformed_.empty() ? "" : ": " + first_malformed_));
  }

  size_t size() const { return size_; }
  int64_t num_malformed() const { return num_malformed_; }
  const std::string& first_malformed() const { return first_malformed_; }

  /// Appends rows `first` to `first` + `count` - 1.
  void read(size_t first, size_t count, std::vector<ClickRow>& rows) const {
    const uint64_t begin = offset(first);
    const uint64_t end = first + count < size_ ? offset(first + count) : end_;
    std::string bytes(end - begin, '\0');
    bytes.resize(file_.read_at(begin, bytes.data(), bytes.size()));
    for (size_t row = first; row < first + count; ++row) {
      const uint64_t at = offset(row) - begin;
      if (at >= bytes.size()) fail_changed();
      const auto line = std::string_view(bytes).substr(at);
      if (parse_click_row(without_carriage_return(line.substr(0, line.find('\n'))), rows.emplace_back()))
        fail_changed();
    }
  }

 private:
  static constexpr size_t kRowsAChunk = 4096;  // all within 2^32 bytes

  uint64_t offset(size_t row) const { return chunks_[row / kRowsAChunk] + offsets_[row]; }

  [[noreturn]] void fail_changed() const {
    throw DataError(file_.path() + ": expected the rows that it had when it was opened, but it has changed");
  }

  void find_rows() {
    std::string bytes;        // content of the file from `begin` on
    uint64_t begin = 0;       // offset of `bytes` in the file
    bool is_skipped = false;  // whether the current line is too long
    for (;;) {
      const size_t had = bytes.size();
      bytes.resize(had + kReadBytes);
      bytes.resize(had + file_.read_at(begin + had, bytes.data() + had, kReadBytes));
      const bool is_end = bytes.size() < had + kReadBytes;
      size_t at = 0;
      for (size_t end = 0; at < bytes.size(); at = end + 1) {
        end = bytes.find('\n', at);
        if (end == std::string::npos && !is_end) break;
        end = std::min(end, bytes.size());
        if (!std::exchange(is_skipped, false))
          note_line(begin + at, std::string_view(bytes).substr(at, end - at));
      }
      at = std::min(at, bytes.size());
      if (is_end) {
        end_ = begin + bytes.size();
        return;
      }
      if (bytes.size() - at > kLongestLine) {  // drop the line
        if (!is_skipped) note_line(begin + at, std::string_view(bytes).substr(at));
        is_skipped = true;
        at = bytes.size();
      }
      bytes.erase(0, at);
      begin += at;
    }
  }

  void note_line(uint64_t offset, std::string_view line) {
    ++num_lines_;
    const auto error =
        line.size() > kLongestLine
            ? std::optional<std::string>("expected a line of click logs, but got one of more than " +
                                         std::to_string(kLongestLine) + " bytes")
            : parse_click_row(without_carriage_return(line), row_);
    if (error) {
      const std::string text = "line " + std::to_string(num_lines_) + ": " + *error;
      if (!skips_malformed_) throw DataError(file_.path() + ": " + text);
      if (num_malformed_++ == 0) first_malformed_ = text;
      return;
    }
    if (size_ % kRowsAChunk == 0) chunks_.push_back(offset);
    const uint64_t within = offset - chunks_.back();
    if (within > UINT32_MAX)
      throw DataError(file_.path() + ": expected rows of click logs, but found 4 GiB with hardly any");
    offsets_.push_back(static_cast<uint32_t>(within));
    ++size_;
  }

  const OpenFile file_;
  const bool skips_malformed_;
  std::vector<uint64_t> chunks_;
  std::vector<uint32_t> offsets_;
  size_t size_ = 0;
  uint64_t end_ = 0;  // size of the file
  int64_t num_lines_ = 0;
  int64_t num_malformed_ = 0;
  std::string first_malformed_;
  ClickRow row_;
};

ClickFile::ClickFile(const ClickFileOptions& options) : index_(std::make_shared<const Index>(options)) {}

std::optional<size_t> ClickFile::size() const {
  return index_->size();
}

int64_t ClickFile::num_malformed() const {
  return index_->num_malformed();
}

const std::string& ClickFile::first_malformed() const {
  return index_->first_malformed();
}

ClickBatch ClickFile::get_batch(c10::ArrayRef<size_t> indices) const {
  std::vector<ClickRow> rows;
  rows.reserve(indices.size());
  for (size_t i = 0; i < indices.size();) {
    size_t count = 1;
    while (i + count < indices.size() && count < kRowsAtOnce && indices[i + count] == indices[i] + count)
      ++count;
    index_->read(indices[i], count, rows);
    i += count;
  }
  return click_batch(rows);
}

}  // namespace lockstep
