#include "lockstep/datasets/parquet/internal/page_payload.h"

#include <parquet/types.h>

#include <cstring>
#include <string>

namespace lockstep {

namespace {

[[noreturn]] void throw_size(const char* what, int64_t expected, int64_t got) {
  throw parquet::ParquetException(std::string(what) + ": expected " + std::to_string(expected) +
                                  " bytes, but got " + std::to_string(got));
}

template <typename T>
T value_or_throw(arrow::Result<T> result) {
  if (!result.ok()) throw parquet::ParquetException(result.status().message());
  return std::move(result).ValueUnsafe();
}

}  // namespace

void PagePayload::begin(arrow::Compression::type compression, int64_t limit) {
  limit_ = limit;
  if (compression == compression_) return;
  codec_.reset();
  stream_.reset();
  compression_ = arrow::Compression::UNCOMPRESSED;
  if (compression == arrow::Compression::UNCOMPRESSED) return;
  codec_ = value_or_throw(arrow::util::Codec::Create(compression));
  // Its one-shot function makes a context for each call. Others have none, or no streams.
  if (compression == arrow::Compression::ZSTD) stream_ = value_or_throw(codec_->MakeDecompressor());
  compression_ = compression;
}

uint8_t* PagePayload::room_for(int64_t size) {
  if (size < 0 || size > limit_) throw_size("a page", limit_, size);
  const int64_t padded = size + kPayloadPadding;
  if (!buffer_ || buffer_->size() < padded)
    buffer_ = value_or_throw(arrow::AllocateResizableBuffer(padded, pool_));
  std::memset(buffer_->mutable_data() + size, 0, kPayloadPadding);
  return buffer_->mutable_data();
}

void PagePayload::decompress(const uint8_t* from, int64_t size, uint8_t* to, int64_t expected) {
  if (size == 0 && expected == 0) return;  // no codec takes the pages without values that parquet-java writes
  if (!codec_) {
    if (size != expected) throw_size("a page without compression", expected, size);
    if (size > 0) std::memcpy(to, from, static_cast<size_t>(size));
    return;
  }
  if (!stream_) {
    const int64_t got = value_or_throw(codec_->Decompress(size, from, expected, to));
    if (got != expected) throw_size("a compressed page", expected, got);
    return;
  }
  if (const arrow::Status status = stream_->Reset(); !status.ok())
    throw parquet::ParquetException(status.message());
  int64_t done = 0;
  while (size > 0) {
    const auto some = value_or_throw(stream_->Decompress(size, from, expected - done, to + done));
    if (some.bytes_read == 0 && some.bytes_written == 0) break;
    from += some.bytes_read;
    size -= some.bytes_read;
    done += some.bytes_written;
  }
  if (done != expected || size > 0) throw_size("a compressed page", expected, done);
}

PaddedBytes PagePayload::of_dictionary(const parquet::DictionaryPage& page, int64_t size) {
  uint8_t* const to = room_for(size);
  decompress(page.data(), page.size(), to, size);
  return {.data = to, .size = static_cast<size_t>(size)};
}

PagePayload::Parts PagePayload::of_data(const parquet::DataPage& page, bool has_levels) {
  if (page.type() == parquet::PageType::DATA_PAGE_V2) {
    const auto& page2 = static_cast<const parquet::DataPageV2&>(page);
    const int64_t levels = page2.definition_levels_byte_length();
    const int64_t values = page2.uncompressed_size() - levels;
    if (page2.repetition_levels_byte_length() != 0 || levels < 0 || levels > page.size() || values < 0)
      throw parquet::ParquetException("expected a page without repetition levels");
    uint8_t* const to = room_for(levels + kPayloadPadding + values);
    std::memcpy(to, page.data(), static_cast<size_t>(levels));
    std::memset(to + levels, 0, kPayloadPadding);
    uint8_t* const to_values = to + levels + kPayloadPadding;
    const int64_t rest = page.size() - levels;
    if (page2.is_compressed() && codec_) {
      decompress(page.data() + levels, rest, to_values, values);
    } else {
      if (rest != values) throw_size("a page without compression", values, rest);
      std::memcpy(to_values, page.data() + levels, static_cast<size_t>(values));
    }
    return {.levels = {.data = to, .size = static_cast<size_t>(levels)},
            .values = {.data = to_values, .size = static_cast<size_t>(values)}};
  }
  const int64_t size = page.uncompressed_size();
  uint8_t* const to = room_for(size);
  decompress(page.data(), page.size(), to, size);
  PaddedBytes values{.data = to, .size = static_cast<size_t>(size)};
  if (!has_levels) return {.levels = {}, .values = values};
  const auto& page1 = static_cast<const parquet::DataPageV1&>(page);
  if (page1.definition_level_encoding() != parquet::Encoding::RLE)
    throw UnknownEncoding("expected definition levels in encoding RLE");
  uint32_t length = 0;
  if (values.size < sizeof length) throw_size("a page's levels", sizeof length, size);
  std::memcpy(&length, to, sizeof length);
  if (length > values.size - sizeof length)
    throw_size("a page's levels", length, static_cast<int64_t>(values.size - sizeof length));
  const PaddedBytes levels{.data = to + sizeof length, .size = length};
  values.data += sizeof length + length;
  values.size -= sizeof length + length;
  return {.levels = levels, .values = values};
}

}  // namespace lockstep
