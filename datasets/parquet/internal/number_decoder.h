#pragma once

#include <ATen/core/Tensor.h>
#include <arrow/buffer.h>
#include <arrow/memory_pool.h>
#include <c10/util/ArrayRef.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/datasets/parquet/internal/page_payload.h"
#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {

/// Returns whether NumberDecoder knows a column chunk: int32, int64, float or double values that tensors
/// take as they are, in the encodings for plain values and dictionaries.
bool can_decode_numbers(const ParquetColumn& column, const parquet::ColumnDescriptor& descriptor,
                        const parquet::ColumnChunkMetaData& chunk);

/// Decodes column chunks of numbers straight into tensors. Arrow's readers, which decode all other columns,
/// take twice as long: they note nulls in bitmaps, move values apart for them, and make a decompression
/// context for each page. Keeps its memory from chunk to chunk. Not thread-safe.
///
/// Encodings are described at https://parquet.apache.org/docs/file-format/data-pages/encodings/.
///
/// Example:
///
///     NumberDecoder decoder(pool, parquet::ReaderProperties());
///     const auto numbers = decoder.decode(column, descriptor, *chunk, bytes, {.rows = 1024});
class NumberDecoder {
 public:
  struct Options {
    int64_t rows = 0;
    /// Stands for nulls. Unset: they are refused.
    std::optional<double> fill{};
    /// If not empty, row i of the result is row order[i] of the chunk. Must be a permutation.
    c10::ArrayRef<uint32_t> order{};
    /// Whether pages of version 2 are compressed even if they do not say so.
    bool is_always_compressed = false;
  };
  struct Numbers {
    at::Tensor values;
    int64_t nulls = 0;  ///< rows that are null
  };

  /// Memory, also that of the tensors, is allocated from `pool`.
  NumberDecoder(arrow::MemoryPool* pool, const parquet::ReaderProperties& properties)
      : pool_(pool), properties_(properties), payload_(pool) {}

  /// Decodes a column chunk that can_decode_numbers() knows, the bytes of which are in `bytes`. Throws
  /// UnknownEncoding if a page has another encoding than the metadata lists, and parquet::ParquetException if
  /// the pages are damaged.
  Numbers decode(const ParquetColumn& column, const parquet::ColumnDescriptor& descriptor,
                 const parquet::ColumnChunkMetaData& chunk, const std::shared_ptr<arrow::Buffer>& bytes,
                 const Options& options);

 private:
  std::shared_ptr<arrow::Buffer> allocated(int64_t bytes) const;

  arrow::MemoryPool* pool_;
  parquet::ReaderProperties properties_;
  PagePayload payload_;
  std::shared_ptr<arrow::Buffer> in_order_;  // values before they are reordered
  std::shared_ptr<arrow::Buffer> indices_;   // into a dictionary, likewise
};

}  // namespace lockstep
