#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/images/ignored_files.h"
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
  /// Turns images upright as the EXIF orientation in their files says, as Pillow's ImageOps.exif_transpose()
  /// does. By default, images are used as they are stored, as by torchvision's ImageFolder and by Keras:
  /// photos taken with the camera held upright may then be on their side.
  bool apply_exif_orientation = false;
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
/// (`mnist.zip/train`), which is read without unpacking. Its folders are the classes, and the files directly
/// in them that end with .png, .jpg, .jpeg or .webp are the images, ordered by class and name:
/// `<path>/<class>/<name>.png`. ignored_files() lists everything else. The interface is that of
/// CollatedDataset.
///
/// All images become RGB, or grey if `channels` is 1, with 8 bits per value:
///
/// - 16 bits: values are scaled to 8 bits and rounded, x / 257. (Pillow cuts off the low byte of colours, and
///   turns every grey value above 255 white.)
/// - Grey of 1, 2 or 4 bits: scaled to the full range of 0 to 255.
/// - Palettes: each pixel becomes its colour in the palette.
/// - Transparency: the alpha channel, or a transparent colour, is dropped. Pixels keep the colour that is
///   stored beneath, also in images of grey and alpha. Nothing is blended.
/// - CMYK and YCCK (JPEG): converted to RGB without a colour profile, and with inks taken as inverted, as
///   programs that print write them.
/// - Grey to RGB: repeated. RGB to grey: 0.299 red + 0.587 green + 0.114 blue, rounded.
/// - Colour profiles and gamma: ignored.
/// - Animated WebP: the first frame. WebP needs a build with libwebp; otherwise a .webp file is an error.
/// - Orientation in EXIF data: ignored, unless `apply_exif_orientation` is set.
///
/// Apart from 16 bits, this is how Pillow converts images to RGB, and therefore torchvision. A PNG file may
/// end after its image data, without an end chunk.
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
  /// images, or the archive is damaged, and ImageError if an image is damaged, unless `skip_bad` is set. The
  /// message says what was found instead, and which path to pass if the classes are one folder deeper. Throws
  /// std::invalid_argument if an option is out of range, or if the images do not fit in a device's cache.
  explicit ImageFolder(const std::string& path, const ImageFolderOptions& options = {});

  std::optional<size_t> size() const;

  /// Blocks on reading and decoding files for images beyond the cache, in parallel. Throws DataError naming a
  /// file that is damaged, or has since been deleted or shortened: of several, the first in the order of
  /// `indices`. With ImageCache::kDevice, `data` is the indices, int64 [n].
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;

  /// With ImageCache::kDevice, expects indices, and blocks at the first batch on a GPU until all images are
  /// there. Throws std::invalid_argument for other data, and LibTorch's error if the GPU has too little
  /// memory.
  torch::data::Example<> device_transform(torch::data::Example<> batch) const;

  /// Returns what get_batch() returns with ImageCache::kHost: the images themselves, on the CPU, whatever the
  /// cache. Blocks and throws as get_batch().
  torch::data::Example<> get_images(c10::ArrayRef<size_t> indices) const;

  /// Returns the number of classes, and a checksum of the classes' names, of all files' names and of the
  /// contents of the first, middle and last file. A folder and a zip archive of it have the same identity.
  std::string identity() const { return identity_; }

  /// Returns the sorted names of the classes; a target is an index into them.
  const std::vector<std::string>& classes() const;

  /// Returns one message for each file that skip_bad skipped.
  const std::vector<std::string>& skipped() const;

  /// Returns the files and folders in the path that are not read because of their names or places.
  const IgnoredFiles& ignored_files() const;

 private:
  ImageTransform transform_;
  std::shared_ptr<const ImageStore> store_;
  std::shared_ptr<DeviceImages> on_devices_;  // null with ImageCache::kHost
  std::string identity_;
};

}  // namespace lockstep
