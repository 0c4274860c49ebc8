#include <zstd.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/byte_source.h"
#include "lockstep/datasets/files/internal/open_file.h"

namespace lockstep {
namespace {

class ZstdSource : public ByteSource {
 public:
  explicit ZstdSource(const std::string& path) : file_(path), compressed_(ZSTD_DStreamInSize()) {
    if (stream_ == nullptr) throw std::bad_alloc();
  }

  size_t read(char* into, size_t size) override {
    ZSTD_outBuffer out{into, size, 0};
    while (out.pos < out.size) {
      if (in_.pos == in_.size && !fill()) {
        // Bytes of the last block may still wait inside the stream.
        const size_t before = out.pos;
        if (!is_within_frame_) break;
        decompress(out);
        if (out.pos == before && is_within_frame_)
          throw DataError(file_.path() + ": damaged zstd file: it ends too early");
        continue;
      }
      decompress(out);
    }
    return out.pos;
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };

  /// Reads more of the file. Returns false at its end.
  bool fill() {
    in_ = {compressed_.data(), file_.read_at(offset_, compressed_.data(), compressed_.size()), 0};
    offset_ += in_.size;
    return in_.size > 0;
  }
  void decompress(ZSTD_outBuffer& out) {
    const size_t left = ZSTD_decompressStream(stream_.get(), &out, &in_);
    if (ZSTD_isError(left) != 0)
      throw DataError(file_.path() + ": damaged zstd file: " + ZSTD_getErrorName(left));
    is_within_frame_ = left != 0;
  }

  const OpenFile file_;
  const std::unique_ptr<ZSTD_DStream, Free> stream_{ZSTD_createDStream()};
  std::vector<char> compressed_;
  ZSTD_inBuffer in_{};
  uint64_t offset_ = 0;
  bool is_within_frame_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_zstd_source(const std::string& path) {
  return std::make_unique<ZstdSource>(path);
}

}  // namespace lockstep
