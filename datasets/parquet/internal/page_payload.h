#pragma once

#include <arrow/buffer.h>
#include <arrow/memory_pool.h>
#include <arrow/util/compression.h>
#include <parquet/column_page.h>
#include <parquet/exception.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace lockstep {

/// Bytes that may be read up to kPayloadPadding bytes beyond their end.
struct PaddedBytes {
  const uint8_t* data = nullptr;
  size_t size = 0;
};

inline constexpr int64_t kPayloadPadding = 64;

/// A page is encoded in a way that is not known here, but may be to Arrow.
class UnknownEncoding : public parquet::ParquetException {
 public:
  using ParquetException::ParquetException;
};

/// The contents of Parquet's pages, decompressed. Keeps its memory and its decompression context from page to
/// page, as to make one takes as long as to decompress a small page. Not thread-safe.
///
/// Example:
///
///     PagePayload payload(pool);
///     payload.begin(arrow::Compression::ZSTD, limit);
///     const PagePayload::Parts parts = payload.of_data(page, /*has_levels=*/true);
class PagePayload {
 public:
  explicit PagePayload(arrow::MemoryPool* pool) : pool_(pool) {}

  /// Begins a column chunk, no page of which may have more than `limit` bytes. Throws
  /// parquet::ParquetException for a compression that this Arrow does not have.
  void begin(arrow::Compression::type compression, int64_t limit);

  /// Returns `size` bytes of a dictionary. They are there until the next page. Throws
  /// parquet::ParquetException if the page has another number of bytes, or cannot be decompressed.
  PaddedBytes of_dictionary(const parquet::DictionaryPage& page, int64_t size);

  struct Parts {
    PaddedBytes levels;  // of definition
    PaddedBytes values;
  };
  /// Returns the definition levels, if there are any, and the values of a page of a column that is not a
  /// list. They are there until the next page. Throws as of_dictionary().
  Parts of_data(const parquet::DataPage& page, bool has_levels);

 private:
  void decompress(const uint8_t* from, int64_t size, uint8_t* to, int64_t expected);
  uint8_t* room_for(int64_t size);

  arrow::MemoryPool* pool_;
  int64_t limit_ = 0;
  arrow::Compression::type compression_ = arrow::Compression::UNCOMPRESSED;
  std::unique_ptr<arrow::ResizableBuffer> buffer_;
  std::unique_ptr<arrow::util::Codec> codec_;  // null: not compressed
  std::shared_ptr<arrow::util::Decompressor> stream_;
};

}  // namespace lockstep
