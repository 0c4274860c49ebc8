#include "lockstep/datasets/parquet/internal/range_reader.h"

#include <arrow/io/caching.h>
#include <arrow/util/future.h>

#include <algorithm>
#include <utility>

#include "lockstep/datasets/parquet/internal/recycling_pool.h"

namespace lockstep {

namespace {

/// Returns whether ranges share bytes, which the cache does not allow. Those of damaged metadata may.
bool do_overlap(std::vector<ByteRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].begin - ranges[i - 1].begin < ranges[i - 1].size) return true;
  return false;
}

}  // namespace

ByteRange range_of_chunk(const parquet::FileMetaData& file, const parquet::ColumnChunkMetaData& chunk,
                         int64_t file_size) {
  const int64_t data = chunk.data_page_offset();
  const int64_t dictionary = chunk.has_dictionary_page() ? chunk.dictionary_page_offset() : 0;
  // Some writers note 0 if there is none.
  ByteRange range{.begin = dictionary > 0 && dictionary < data ? dictionary : data,
                  .size = chunk.total_compressed_size()};
  // Old versions of parquet-mr do not count the header of the dictionary's page (PARQUET-816).
  constexpr int64_t kMostHeader = 100;
  const bool is_complete =
      !file.writer_version().VersionLt(parquet::ApplicationVersion::PARQUET_816_FIXED_VERSION());
  if (!is_complete && range.begin >= 0 && range.size >= 0 && range.begin <= file_size - range.size)
    range.size += std::min(kMostHeader, file_size - range.begin - range.size);
  return range;
}

RangeReader::RangeReader(std::shared_ptr<arrow::io::RandomAccessFile> file, std::vector<ByteRange> ranges,
                         bool is_stored)
    : file_(std::move(file)), ranges_(std::move(ranges)) {
  if (!is_stored || do_overlap(ranges_)) return;
  cache_ = std::make_unique<arrow::io::internal::ReadRangeCache>(file_, arrow::io::default_io_context(),
                                                                 arrow::io::CacheOptions::Defaults());
  std::vector<arrow::io::ReadRange> wanted;
  for (const ByteRange& range : ranges_)
    if (range.size > 0) wanted.push_back({range.begin, range.size});
  const arrow::Status status = cache_->Cache(std::move(wanted));
  if (!status.ok()) cache_.reset();  // read() meets the error again
}

RangeReader::~RangeReader() {
  // Reads that nobody waits for use the file.
  if (cache_) cache_->Wait().Wait();
}

arrow::Result<std::shared_ptr<arrow::Buffer>> RangeReader::read(size_t range) {
  const ByteRange& wanted = ranges_[range];
  if (cache_ && wanted.size > 0) return cache_->Read({wanted.begin, wanted.size});
  if (!buffer_) {
    int64_t largest = 0;
    for (const ByteRange& any : ranges_) largest = std::max(largest, any.size);
    ARROW_ASSIGN_OR_RAISE(buffer_, arrow::AllocateResizableBuffer(largest, recycling_pool()));
  }
  ARROW_RETURN_NOT_OK(buffer_->Resize(wanted.size, /*shrink_to_fit=*/false));
  ARROW_ASSIGN_OR_RAISE(const int64_t got, file_->ReadAt(wanted.begin, wanted.size, buffer_->mutable_data()));
  if (got != wanted.size)
    return arrow::Status::IOError("expected ", wanted.size, " bytes from ", wanted.begin, ", but got ", got);
  return buffer_;
}

}  // namespace lockstep
