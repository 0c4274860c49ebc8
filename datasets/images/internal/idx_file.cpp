#include "lockstep/datasets/images/internal/idx_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <new>
#include <span>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/deflate_ratio.h"
#include "lockstep/datasets/files/internal/file_bytes.h"

namespace lockstep {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;

bool is_gzip(std::span<const uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1F && bytes[1] == 0x8B;
}

/// The content of a file held in memory. Inflates gzip while reading.
class Content {
 public:
  Content(std::span<const uint8_t> bytes, const std::string& path) : path_(path), bytes_(bytes) {
    if (!is_gzip(bytes)) return;
    inflating_ = true;
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Content() {
    if (inflating_) inflateEnd(&stream_);
  }
  Content(const Content&) = delete;
  Content& operator=(const Content&) = delete;

  /// Returns an upper bound of the content's size.
  uint64_t max_size() const { return inflating_ ? file_size_ * kMaxDeflateRatio : file_size_; }

  /// Copies up to `out.size()` bytes; fewer only at the end.
  size_t read(std::span<uint8_t> out) {
    if (inflating_) return inflate_into(out);
    const size_t count = std::min(out.size(), bytes_.size());
    std::copy_n(bytes_.begin(), count, out.begin());
    bytes_ = bytes_.subspan(count);
    return count;
  }

 private:
  size_t inflate_into(std::span<uint8_t> out) {
    size_t done = 0;
    while (done < out.size() && !ended_) {
      // zlib counts in 32 bits.
      constexpr size_t kMaxStep = size_t{1} << 30;
      const auto in_step = static_cast<uInt>(std::min(bytes_.size(), kMaxStep));
      const auto out_step = static_cast<uInt>(std::min(out.size() - done, kMaxStep));
      stream_.next_in = const_cast<Bytef*>(bytes_.data());
      stream_.avail_in = in_step;
      stream_.next_out = out.data() + done;
      stream_.avail_out = out_step;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      bytes_ = bytes_.subspan(in_step - stream_.avail_in);
      done += out_step - stream_.avail_out;
      if (code == Z_STREAM_END) {
        // A gzip file may consist of several members.
        ended_ = bytes_.empty();
        if (!ended_) inflateReset(&stream_);
      } else if (code == Z_BUF_ERROR && bytes_.empty()) {
        throw DataError(path_ + ": damaged gzip: the file ends too early");
      } else if (code != Z_OK) {
        throw DataError(path_ + ": damaged gzip: " + (stream_.msg != nullptr ? stream_.msg : zError(code)));
      }
    }
    return done;
  }

  const std::string& path_;
  std::span<const uint8_t> bytes_;
  const uint64_t file_size_ = bytes_.size();
  z_stream stream_{};
  bool inflating_ = false;
  bool ended_ = false;
};

std::string dimensions_text(const std::vector<int64_t>& dimensions) {
  std::string text;
  for (const int64_t dimension : dimensions) {
    if (!text.empty()) text += " x ";
    text += std::to_string(dimension);
  }
  return text;
}

void read_header_bytes(Content& content, std::span<uint8_t> out, const std::string& path, const char* field) {
  const size_t count = content.read(out);
  if (count < out.size()) {
    throw DataError(path, field, std::to_string(out.size()) + " bytes",
                    "the file's end after " + std::to_string(count));
  }
}

void check_magic(const std::array<uint8_t, 4>& magic, const IdxOptions& options, const std::string& path) {
  constexpr char kDigits[] = "0123456789abcdef";
  const auto hexadecimal = [&](uint8_t byte) {
    return std::string("0x") + kDigits[byte >> 4] + kDigits[byte & 15];
  };
  if (magic[0] != 0 || magic[1] != 0) {
    throw DataError(path, "magic number", "two zero bytes first",
                    hexadecimal(magic[0]) + " " + hexadecimal(magic[1]));
  }
  if (magic[2] != kUnsignedByte) {
    throw DataError(path, "value type", hexadecimal(kUnsignedByte) + " (unsigned byte)",
                    hexadecimal(magic[2]));
  }
  if (magic[3] != options.num_dimensions) {
    throw DataError(path, "number of dimensions", std::to_string(options.num_dimensions),
                    std::to_string(magic[3]));
  }
}

/// Returns the product of the dimensions. Checks the limit at every factor, so that it cannot overflow.
uint64_t checked_count(const std::vector<int64_t>& dimensions, uint64_t max_bytes, const std::string& path) {
  if (std::find(dimensions.begin(), dimensions.end(), 0) != dimensions.end()) return 0;
  uint64_t count = 1;
  for (const int64_t dimension : dimensions) {
    if (count > max_bytes / static_cast<uint64_t>(dimension)) {
      throw DataError(path, "dimensions", "at most " + std::to_string(max_bytes) + " values",
                      dimensions_text(dimensions));
    }
    count *= static_cast<uint64_t>(dimension);
  }
  return count;
}

}  // namespace

IdxArray read_idx(const std::string& path, const IdxOptions& options) {
  const std::vector<uint8_t> file = read_file(path, options.max_bytes);
  if (path.ends_with(".gz") && !is_gzip(file)) {
    throw DataError(path + ": damaged gzip: expected a file that begins with 1f 8b, as its name says");
  }
  Content content(file, path);

  std::array<uint8_t, 4> magic{};
  read_header_bytes(content, magic, path, "magic number");
  check_magic(magic, options, path);

  IdxArray array;
  for (int64_t i = 0; i < options.num_dimensions; ++i) {
    std::array<uint8_t, 4> dimension{};
    read_header_bytes(content, dimension, path, "dimensions");
    array.dimensions.push_back((int64_t{dimension[0]} << 24) | (dimension[1] << 16) | (dimension[2] << 8) |
                               dimension[3]);
  }
  const uint64_t count = checked_count(array.dimensions, options.max_bytes, path);
  const std::string expected = std::to_string(count) + " bytes (" + dimensions_text(array.dimensions) + ")";
  if (count > content.max_size()) {
    throw DataError(path, "values", expected,
                    "a file that holds at most " + std::to_string(content.max_size()));
  }

  array.values.resize(count);
  const size_t found = content.read(array.values);
  if (found < count) throw DataError(path, "values", expected, std::to_string(found));
  std::array<uint8_t, 1> beyond{};
  if (content.read(beyond) != 0) throw DataError(path, "values", expected, "more");
  return array;
}

}  // namespace lockstep
