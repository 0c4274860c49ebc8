#include "lockstep/datasets/files/internal/byte_source.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/open_file.h"

namespace lockstep {
namespace {

class PlainSource : public ByteSource {
 public:
  explicit PlainSource(const std::string& path) : file_(path) {}
  size_t read(char* into, size_t size) override {
    const size_t got = file_.read_at(offset_, into, size);
    offset_ += got;
    return got;
  }

 private:
  const OpenFile file_;
  uint64_t offset_ = 0;
};

class GzipSource : public ByteSource {
 public:
  explicit GzipSource(std::string path) : path_(std::move(path)) {
    constexpr unsigned kBufferBytes = 256 << 10;
    const int descriptor = OpenFile(path_).duplicate();
    file_ = gzdopen(descriptor, "rb");
    if (file_ == nullptr) {
      ::close(descriptor);
      throw DataError(path_ + ": cannot read it as a gzip file: out of memory");
    }
    gzbuffer(file_, kBufferBytes);
  }
  ~GzipSource() override { gzclose_r(file_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  size_t read(char* into, size_t size) override {
    size_t done = 0;
    while (done < size) {
      const auto most = static_cast<unsigned>(std::min<size_t>(size - done, INT_MAX));
      const int got = gzread(file_, into + done, most);
      // A file that ends within a member is an error only of the read after its last byte.
      int error = Z_OK;
      const char* message = gzerror(file_, &error);
      if (got < 0 || (got == 0 && error == Z_BUF_ERROR))
        throw DataError(path_ + ": damaged gzip file: " +
                        (error == Z_BUF_ERROR ? std::string("it ends too early")
                         : error == Z_ERRNO   ? std::generic_category().message(errno)
                                              : reason(message)));
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

 private:
  /// Returns zlib's message without the name that it gives the file.
  static const char* reason(const char* message) {
    const char* colon = std::strstr(message, ": ");
    return colon == nullptr ? message : colon + 2;
  }

  const std::string path_;
  gzFile file_ = nullptr;
};

}  // namespace

Compression compression_of(const std::string& path) {
  using std::string_view_literals::operator""sv;
  std::array<char, 4> begin{};
  const size_t size = OpenFile(path).read_at(0, begin.data(), begin.size());
  const std::string_view bytes(begin.data(), size);
  const auto found = bytes.starts_with("\x1f\x8b"sv)           ? Compression::kGzip
                     : bytes.starts_with("\x28\xb5\x2f\xfd"sv) ? Compression::kZstd
                                                               : Compression::kNone;
  if (path.ends_with(".gz") && found != Compression::kGzip)
    throw DataError(path + ": expected a gzip file, as its name ends with .gz, but it is not one");
  if (path.ends_with(".zst") && found != Compression::kZstd)
    throw DataError(path + ": expected a zstd file, as its name ends with .zst, but it is not one");
  return found;
}

std::unique_ptr<ByteSource> open_byte_source(const std::string& path) {
  switch (compression_of(path)) {
    case Compression::kGzip:
      return std::make_unique<GzipSource>(path);
    case Compression::kZstd:
      return open_zstd_source(path);
    case Compression::kNone:
      break;
  }
  return std::make_unique<PlainSource>(path);
}

}  // namespace lockstep
