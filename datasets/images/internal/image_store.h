#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/datasets/images/internal/class_folder.h"
#include "lockstep/datasets/images/internal/decoded_image.h"
#include "lockstep/datasets/images/internal/image_conversion.h"

namespace lockstep {

struct ImageStoreOptions {
  int64_t channels = 3;
  int64_t image_size = 0;
  int64_t num_threads = 0;  ///< that decode; 0 is one a core
  int64_t cache_bytes = 0;
  bool skip_bad = false;
};

/// The decoded images of a class folder: in memory as far as `cache_bytes` reaches, decoded on demand beyond.
///
/// Where the images are alike and fit into the cache, they are kept as they are, to be resized later in
/// batches; grey then is one channel. Else each image is converted when it is decoded: to `channels` channels
/// and to `image_size`. Where that is 0, an image of another size than the first's is an error.
class ImageStore {
 public:
  /// Decodes what the cache takes, blocking until done. Throws DataError for the first bad file. With
  /// `skip_bad` it decodes every file once, also those beyond the cache, takes the bad ones out of the
  /// folder, and throws where none is left.
  ImageStore(ClassFolder folder, const ImageStoreOptions& options);
  ~ImageStore();
  ImageStore(const ImageStore&) = delete;
  ImageStore& operator=(const ImageStore&) = delete;

  const ClassFolder& folder() const { return folder_; }
  const ImageLayout& layout() const { return layout_; }
  size_t num_cached() const { return num_cached_; }

  /// The errors of the files that were taken out, in the folder's order.
  const std::vector<std::string>& skipped() const { return skipped_; }

  /// Copies image `index` to `out`, layout().bytes() long. Safe from several threads at once. Throws
  /// DataError where a file beyond the cache is damaged or gone.
  void copy_image(size_t index, uint8_t* out) const;

 private:
  class ReaderPool;

  DecodedImage decode(const ClassFolderFile& file, ClassFolderReader& reader) const;
  DecodedImage decode_first() const;
  void store(const DecodedImage& image, const ClassFolderFile& file, uint8_t* out) const;
  bool fill(bool convert);
  void remove_bad(const std::vector<std::string>& errors);

  ImageStoreOptions options_;
  ClassFolder folder_;
  ImageLayout layout_;
  std::unique_ptr<uint8_t[]> cache_;  ///< the first num_cached_ images, one after another
  size_t num_cached_ = 0;
  std::vector<std::string> skipped_;
  std::unique_ptr<ReaderPool> readers_;
};

}  // namespace lockstep
