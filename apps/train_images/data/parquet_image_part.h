#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/images/parquet_images.h"

namespace lockstep::apps {

/// Some of the images of Parquet files.
struct ImageSelection {
  size_t num_tests = 0;  ///< images to test on, taken evenly from all, so that files may be sorted by class
  bool takes_tests = false;  ///< whether to take these images, or the others
  size_t limit = 0;          ///< at most so many, from the first one on; 0: all
};

/// Images of Parquet files to train or to test on: a CollatedDataset and a ChunkedDataset. Copies share the
/// files and the memory. Thread-safe.
class ParquetImagePart {
 public:
  /// The number of tests must be at most that of images.
  explicit ParquetImagePart(ParquetImages images, const ImageSelection& selection = {});

  std::optional<size_t> size() const { return size_; }
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;
  torch::data::Example<> device_transform(torch::data::Example<> batch) const {
    return images_.device_transform(std::move(batch));
  }
  std::string identity() const;

  std::vector<size_t> chunk_sizes() const;
  size_t max_open_chunks() const { return images_.max_open_chunks(); }
  void prefetch_chunks(const std::vector<size_t>& chunks,
                       const ParquetDataset::OrderWithin& order_within = {}) const;

  const ParquetImages& images() const { return images_; }

 private:
  size_t place_of(size_t index) const;
  size_t count_before(size_t place) const;

  ParquetImages images_;
  ImageSelection selection_;
  size_t all_;
  size_t size_;
};

}  // namespace lockstep::apps
