#pragma once

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <parquet/metadata.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace arrow::io::internal {
class ReadRangeCache;
}

namespace lockstep {

/// A part of a file.
struct ByteRange {
  int64_t begin = 0;
  int64_t size = 0;
};

/// Returns where the pages of a column chunk are, as its metadata says, which may be damaged.
ByteRange range_of_chunk(const parquet::FileMetaData& file, const parquet::ColumnChunkMetaData& chunk,
                         int64_t file_size);

/// Reads parts of a file, one after another. Each request to a store takes long, so that neighbouring parts
/// are asked for together, and all of them at once.
///
/// Example:
///
///     RangeReader reader(file, {{.begin = 4, .size = 100}, {.begin = 104, .size = 60}}, is_stored);
///     std::shared_ptr<arrow::Buffer> second = reader.read(1).ValueOrDie();
class RangeReader {
 public:
  /// Sends the requests if the file is stored. Does not block.
  RangeReader(std::shared_ptr<arrow::io::RandomAccessFile> file, std::vector<ByteRange> ranges,
              bool is_stored);
  ~RangeReader();
  RangeReader(const RangeReader&) = delete;
  RangeReader& operator=(const RangeReader&) = delete;

  /// Returns the bytes of a range. Blocks until they are read. They are there until the next call. Returns an
  /// error if they cannot be read, or if the file ends before.
  arrow::Result<std::shared_ptr<arrow::Buffer>> read(size_t range);

 private:
  std::shared_ptr<arrow::io::RandomAccessFile> file_;
  std::vector<ByteRange> ranges_;
  std::unique_ptr<arrow::io::internal::ReadRangeCache> cache_;  // null: a local file
  std::shared_ptr<arrow::ResizableBuffer> buffer_;
};

}  // namespace lockstep
