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

namespace lockstep {

class ImageStore;

struct ImageFolderOptions {
  /// Height and width of the images that device_transform() makes. 0 keeps the files' own, which then must be
  /// the same for all. Images that are not square are stretched.
  int64_t image_size = 0;
  /// 3, or 1 to train on grey images. Files of the other kind are converted.
  int64_t channels = 3;
  /// device_transform() gives (x / 255 - mean) / stddev: one number for all channels, or one a channel.
  std::vector<double> mean = {0.0};
  std::vector<double> stddev = {1.0};
  /// Uses so many images only, taken from the classes in turn, each in the order of its names; 0 uses all.
  int64_t limit = 0;
  /// Leaves out files that cannot be decoded, instead of throwing; skipped() tells which.
  bool skip_bad = false;
  /// Memory for decoded images. Those beyond it are decoded whenever they are asked for.
  int64_t cache_bytes = int64_t{4} << 30;
  /// Threads that decode while the folder is opened; 0 is one a core.
  int64_t num_threads = 0;
};

/// Images in one folder a class: `path` is a directory, a zip archive, or a folder inside one
/// (`mnist.zip/train`), read without unpacking. Holds PNG and JPEG files, `<path>/<class>/<name>.png`, in the
/// order of classes and names, see list_class_folder(). See CollatedDataset for the interface.
///
/// Images are decoded to uint8 once, in parallel, and kept in memory. If all are alike they stay as they are,
/// and device_transform() resizes them in batches; images of different sizes are resized while decoding.
class ImageFolder {
 public:
  /// Blocks until the images are decoded. Throws DataError for a path that is no class folder, a class
  /// without images, a damaged archive, and, unless skip_bad is set, for the first damaged image;
  /// std::invalid_argument for options out of range.
  explicit ImageFolder(const std::string& path, const ImageFolderOptions& options = {});

  std::optional<size_t> size() const;

  /// Blocks on files for images beyond the cache, and throws DataError naming a file that was deleted,
  /// shortened or damaged since.
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;
  torch::data::Example<> device_transform(torch::data::Example<> batch) const;

  /// The classes' names, sorted; a target is an index into them.
  const std::vector<std::string>& classes() const;

  /// One message for each file that skip_bad left out.
  const std::vector<std::string>& skipped() const;

 private:
  ImageTransform transform_;
  std::shared_ptr<const ImageStore> store_;
};

}  // namespace lockstep
