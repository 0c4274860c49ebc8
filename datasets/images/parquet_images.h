#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/images/image_transform.h"
#include "lockstep/datasets/parquet/parquet_dataset.h"

namespace lockstep {

struct ParquetImagesState;

struct ParquetImagesOptions {
  /// Files, folders, patterns and URIs, as in ParquetDatasetOptions.
  std::vector<std::string> paths;
  /// Holds the bytes of PNG, JPEG or WebP files: a binary, or a struct of bytes and a path, as Hugging Face's
  /// datasets hold images. Fields of other structs are named as in "photo.bytes".
  std::string image_column = "image";
  /// Holds whole numbers from 0 on, or strings.
  std::string label_column = "label";
  /// Names of the classes, in the order of the targets. Empty: the sorted strings in the column of labels, or
  /// "0", "1" and so on up to its largest number; the column is then read once at the start.
  std::vector<std::string> classes{};
  /// As in ImageFolderOptions, like the next five.
  int64_t image_size = 0;
  int64_t channels = 3;
  std::vector<double> mean = {0.0};
  std::vector<double> stddev = {1.0};
  /// Leaves out row groups that cannot be read, images that cannot be decoded, and rows whose label is none
  /// of a class; skipped() lists them. To find them, all images are read and decoded once at the start.
  bool skip_bad = false;
  bool apply_exif_orientation = false;
  /// Threads that decode the images of a batch, the caller among them; 0: one per core.
  int64_t num_threads = 0;
  /// The most bytes of row groups, whose images are still encoded, as in ParquetDatasetOptions, like the
  /// next two.
  int64_t memory_limit = int64_t{1} << 30;
  int64_t lanes = 0;
  int store_attempts = 8;
};

/// Images and their labels in Parquet files: a CollatedDataset and a ChunkedDataset. Rows are read, shuffled
/// and kept as by ParquetDataset. Images are decoded each time they are needed, by several threads, and
/// become tensors as those of an ImageFolder that holds the same files beyond its cache: each image is
/// converted to `channels` and resized to `image_size` when it is decoded. Copies share the files, the memory
/// and the threads. All functions are thread-safe.
///
/// Needs a build with Apache Arrow (docs/data.md).
///
/// Example:
///
///     ParquetImages images({.paths = {"imagenet/train-*.parquet"}, .image_size = 64});
///     auto batches = strategy.distribute_dataset(images, {.global_batch_size = 256, .shuffle_seed = 7});
class ParquetImages {
 public:
  /// Blocks until the metadata of all files is read, and the labels unless the classes are given; with
  /// `skip_bad`, until all images were decoded. Throws as ParquetDataset(); DataError naming the file and the
  /// column if it holds neither images nor labels by its type, or if there is no row; naming the row group
  /// and the row, too, if a label is negative or empty, unless `skip_bad` is set; ImageError if `image_size`
  /// is 0 and the first image cannot be decoded. Throws std::invalid_argument if an option is out of range.
  explicit ParquetImages(const ParquetImagesOptions& options);

  std::optional<size_t> size() const;
  /// Blocks until the row groups are there, and the images are decoded. Throws as
  /// ParquetDataset::get_batch(). Throws ImageError naming the file, the row group and the row if an image is
  /// damaged or has another size than the first one although `image_size` is 0, and DataError if a label is
  /// none of a class: of several, for the first in the order of `indices`.
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;
  torch::data::Example<> device_transform(torch::data::Example<> batch) const;

  /// Returns the identity of the ParquetDataset, with a checksum of the classes and of what was left out.
  std::string identity() const;

  /// Returns the names of the classes; a target is an index into them.
  const std::vector<std::string>& classes() const;
  /// Returns whether the labels in the files are strings.
  bool has_names() const;
  /// Returns one message for each image and row group that was left out.
  const std::vector<std::string>& skipped() const;
  /// Returns the rows as they are in the files: columns of encoded images and labels. skip_bad may have left
  /// out some of them.
  const ParquetDataset& rows() const;

  /// Make this a ChunkedDataset.
  std::vector<size_t> chunk_sizes() const;
  size_t max_open_chunks() const;
  void prefetch_chunks(const std::vector<size_t>& chunks,
                       const ParquetDataset::OrderWithin& order_within = {}) const;

 private:
  std::shared_ptr<const ParquetImagesState> state_;
};

}  // namespace lockstep
