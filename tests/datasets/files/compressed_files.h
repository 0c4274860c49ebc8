#pragma once

#include <zlib.h>

#include <stdexcept>
#include <string>
#include <string_view>

#ifdef LOCKSTEP_TEST_ZSTD
#include <zstd.h>
#endif

namespace lockstep::testing {

/// The text as a gzip file of one member.
inline std::string gzip_of(std::string_view text) {
  constexpr int kGzip = 15 + 16;
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("deflateInit2 failed");
  std::string bytes(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("deflate failed");
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

#ifdef LOCKSTEP_TEST_ZSTD
/// The text as a zstd file of one frame.
inline std::string zstd_of(std::string_view text) {
  std::string bytes(ZSTD_compressBound(text.size()), '\0');
  const size_t size = ZSTD_compress(bytes.data(), bytes.size(), text.data(), text.size(), 3);
  if (ZSTD_isError(size) != 0) throw std::runtime_error(ZSTD_getErrorName(size));
  bytes.resize(size);
  return bytes;
}
#endif

}  // namespace lockstep::testing
