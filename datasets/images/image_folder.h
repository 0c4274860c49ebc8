#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/images/image_cache.h"
#include "lockstep/datasets/images/image_transform.h"

namespace lockstep {

class DeviceImages;
class ImageStore;

struct ImageFolderOptions {
  /// Height and width of the images that device_transform() returns. If 0, the files' own size, which must
  /// then be the same for all. Images that are not square are stretched.
  int64_t image_size = 0;
  /// 3, or 1 for grey images. Files of the other kind are converted.
  int64_t channels = 3;
  /// device_transform() returns (x / 255 - mean) / stddev. One number for all channels, or one per channel.
  std::vector<double> mean = {0.0};
  std::vector<double> stddev = {1.0};
  /// Number of images to use, taken from the classes in turn, in the order of their names within a class; 0
  /// uses all.
  int64_t limit = 0;
  /// Skips files that cannot be decoded instead of throwing; skipped() lists them.
  bool skip_bad = false;
  /// Memory for decoded images. Images that do not fit are decoded each time they are needed.
  int64_t cache_bytes = int64_t{4} << 30;
  /// With kDevice, all images must fit in `cache_bytes`, and each device needs as much memory for its copy.
  /// The host keeps the images, too.
  ImageCache cache = ImageCache::kHost;
  /// Threads that decode, while the folder is opened and in get_batch() for images beyond the cache; 0 means
  /// one per core. The caller of get_batch() is one of them. Copies of the folder share the others.
  int64_t num_threads = 0;
};

/// Images with one folder per class. `path` is a directory, a zip archive, or a folder inside one
/// (`mnist.zip/train`), which is read without unpacking. Reads PNG and JPEG files,
/// `<path>/<class>/<name>.png`, ordered by class and name, see list_class_folder(). The interface is that of
/// CollatedDataset.
///
/// Images are decoded to uint8 once, in parallel, and kept in memory. If all have the same size and channels
/// and fit in the cache, device_transform() resizes them in batches; otherwise they are resized while
/// decoding.
///
/// With ImageCache::kDevice, get_batch() returns only the indices of images, and device_transform() gathers
/// the images on the batch's device from a copy of all of them, which it makes at the first batch on each
/// GPU. Batches have the same bits as with kHost. Copies of the folder share the GPUs' copies, which are
/// freed with the last one.
///
/// Example:
///
///     ImageFolder images("mnist.zip/train", {.image_size = 64});
///     auto batches = strategy.distribute_dataset(images, {.global_batch_size = 256, .shuffle_seed = 7});
class ImageFolder {
 public:
  /// Blocks until the images are decoded. Throws DataError if the path is not a class folder, a class has no
  /// images, the archive is damaged or, unless skip_bad is set, an image is damaged. Throws
  /// std::invalid_argument if an option is out of range, or if the images do not fit in a device's cache.
  explicit ImageFolder(const std::string& path, const ImageFolderOptions& options = {});

  std::optional<size_t> size() const;

  /// Blocks on reading and decoding files for images beyond the cache, in parallel. Throws DataError naming a
  /// file that has since been deleted, shortened or damaged: of several, the first in the order of `indices`.
  /// With ImageCache::kDevice, `data` is the indices, int64 [n].
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;

  /// With ImageCache::kDevice, expects indices, and blocks at the first batch on a GPU until all images are
  /// there. Throws std::invalid_argument for other data, and LibTorch's error if the GPU has too little
  /// memory.
  torch::data::Example<> device_transform(torch::data::Example<> batch) const;

  /// Returns what get_batch() returns with ImageCache::kHost: the images themselves, on the CPU, whatever the
  /// cache. Blocks and throws as get_batch().
  torch::data::Example<> get_images(c10::ArrayRef<size_t> indices) const;

  /// Returns the sorted names of the classes; a target is an index into them.
  const std::vector<std::string>& classes() const;

  /// Returns one message for each file that skip_bad skipped.
  const std::vector<std::string>& skipped() const;

 private:
  ImageTransform transform_;
  std::shared_ptr<const ImageStore> store_;
  std::shared_ptr<DeviceImages> on_devices_;  // null with ImageCache::kHost
};

}  // namespace lockstep
