#pragma once

#include <algorithm>
#include <cstddef>
#include <variant>
#include <vector>

#include "lockstep/datasets/parquet/parquet_dataset.h"

namespace lockstep::apps {

/// A range of a dataset's examples, as `Range` is one, if the dataset is a `Chunked`: then the range is a
/// ChunkedDataset, too. `Range` has a source(), a variant of datasets, and a first() and a size().
///
/// Example:
///
///     const Clicks train(ParquetClicks({.paths = {"clicks"}}), 0, 1'000'000);
///     auto batches = strategy.distribute_dataset(ChunkedRange<Clicks, ParquetClicks>(train), options);
template <typename Range, typename Chunked>
class ChunkedRange : public Range {
 public:
  /// Throws std::bad_variant_access unless the examples are of a `Chunked`.
  explicit ChunkedRange(const Range& range) : Range(range) { chunked(); }

  /// Chunks before and after the range have size 0.
  std::vector<size_t> chunk_sizes() const {
    std::vector<size_t> sizes = chunked().chunk_sizes();
    const size_t end_of_range = this->first() + *this->size();
    size_t begin = 0;  // of the chunk
    for (size_t& size : sizes) {
      const size_t end = begin + size;
      const size_t from = std::max(begin, this->first());
      const size_t to = std::min(end, end_of_range);
      size = to > from ? to - from : 0;
      begin = end;
    }
    return sizes;
  }
  size_t max_open_chunks() const { return chunked().max_open_chunks(); }
  void prefetch_chunks(const std::vector<size_t>& chunks,
                       const ParquetDataset::OrderWithin& order_within = {}) const {
    chunked().prefetch_chunks(chunks, order_within);
  }

 private:
  const Chunked& chunked() const { return std::get<Chunked>(this->source()); }
};

}  // namespace lockstep::apps
