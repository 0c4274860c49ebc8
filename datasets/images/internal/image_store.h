#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/datasets/images/internal/class_folder.h"
#include "lockstep/datasets/images/internal/decoded_image.h"
#include "lockstep/datasets/images/internal/image_conversion.h"

namespace lockstep {

class ParallelBlocks;

struct ImageStoreOptions {
  int64_t channels = 3;
  int64_t image_size = 0;
  int64_t num_threads = 0;  ///< decoding threads; 0: one per core
  int64_t cache_bytes = 0;
  bool skip_bad = false;
  bool apply_exif_orientation = false;
  bool must_fit = false;  ///< refuses images that do not all fit in the cache
};

/// The decoded images of a class folder. Keeps as many in memory as fit in `cache_bytes` and decodes the
/// others on demand.
///
/// If all images have the same layout and fit in the cache, stores them unchanged (grey as one channel) to be
/// resized later in batches. Otherwise converts each image when it is decoded to `channels` channels and to
/// `image_size`. If `image_size` is 0, all images must have the size of the first; another size is an error.
class ImageStore {
 public:
  /// Decodes the images for the cache; blocks until done. Throws ImageError for the first bad file. With
  /// `skip_bad`, decodes every file once, even those beyond the cache, removes bad ones from the folder, and
  /// throws DataError if none is left. Throws std::invalid_argument if `must_fit` is set and the images do
  /// not fit, of which bad ones are counted, too.
  ImageStore(ClassFolder folder, const ImageStoreOptions& options);
  ~ImageStore();
  ImageStore(const ImageStore&) = delete;
  ImageStore& operator=(const ImageStore&) = delete;

  const ClassFolder& folder() const { return folder_; }
  const ImageLayout& layout() const { return layout_; }
  size_t num_cached() const { return num_cached_; }
  /// Returns the first num_cached() images, one after another.
  const uint8_t* cached_images() const { return cache_.get(); }

  /// Returns the errors of the removed files, in the folder's order.
  const std::vector<std::string>& skipped() const { return skipped_; }

  /// Copies images to `out`, layout().bytes() for each, one after another. Decodes those beyond the cache in
  /// parallel; calls at the same time share the decoding threads. Thread-safe. Throws ImageError if a file
  /// beyond the cache is damaged or missing, or DataError with `skip_bad`, which has seen it undamaged: of
  /// several, for the first in the order of `indices`.
  void copy_images(std::span<const size_t> indices, uint8_t* out) const;

 private:
  class ReaderPool;

  DecodedImage decode(const ClassFolderFile& file, ClassFolderReader& reader) const;
  DecodedImage decode_first() const;
  void store(const DecodedImage& image, const ClassFolderFile& file, uint8_t* out) const;
  size_t num_fitting() const;
  void check_fit(size_t image_bytes) const;
  bool fill(bool convert);
  void remove_bad(const std::vector<std::string>& errors);

  ImageStoreOptions options_;
  ClassFolder folder_;
  ImageLayout layout_;
  std::unique_ptr<uint8_t[]> cache_;  ///< the first num_cached_ images, contiguous
  size_t num_cached_ = 0;
  std::vector<std::string> skipped_;
  // Both are null if all images are cached.
  std::unique_ptr<ReaderPool> readers_;
  std::unique_ptr<ParallelBlocks> threads_;
};

}  // namespace lockstep
