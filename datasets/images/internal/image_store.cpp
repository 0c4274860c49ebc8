#include "lockstep/datasets/images/internal/image_store.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/parallel_blocks.h"
#include "lockstep/datasets/images/internal/decode_file.h"

namespace lockstep {
namespace {

/// The cache is filled in blocks of this size, each by one thread with one reader.
constexpr size_t kBlockSize = 64;

}  // namespace

/// Lends each reader to one thread at a time. Readers are kept, as opening a large archive takes a while.
class ImageStore::ReaderPool {
 public:
  explicit ReaderPool(const ClassFolder& folder) : folder_(folder) {}

  std::unique_ptr<ClassFolderReader> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto reader = std::move(free_.back());
        free_.pop_back();
        return reader;
      }
    }
    return std::make_unique<ClassFolderReader>(folder_);
  }

  void give_back(std::unique_ptr<ClassFolderReader> reader) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(reader));
  }

 private:
  const ClassFolder& folder_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ClassFolderReader>> free_;  // guarded by mutex_
};

ImageStore::ImageStore(ClassFolder folder, const ImageStoreOptions& options)
    : options_(options),
      folder_(std::move(folder)),
      readers_(std::make_unique<ReaderPool>(folder_)),
      threads_(std::make_unique<ParallelBlocks>(options_.num_threads)) {
  const ImageLayout first = layout_of(decode_first());
  // All images may have the first one's layout. Only decoding them shows it, and only a folder that fits into
  // the cache is decoded completely.
  layout_ = {
      .channels = std::min(options_.channels, first.channels), .height = first.height, .width = first.width};
  const size_t unconverted_bytes = layout_.bytes();
  const bool fits = num_fitting() == folder_.files.size();
  if (!fits || !fill(/*convert=*/false)) {
    layout_.channels = options_.channels;
    if (options_.image_size != 0) layout_.height = layout_.width = options_.image_size;
    if (options_.must_fit) check_fit(fits ? layout_.bytes() : std::min(unconverted_bytes, layout_.bytes()));
    fill(/*convert=*/true);
  }
  if (num_cached_ == folder_.files.size()) {
    readers_.reset();
    threads_.reset();
  }
}

ImageStore::~ImageStore() = default;

DecodedImage ImageStore::decode(const ClassFolderFile& file, ClassFolderReader& reader) const {
  try {
    const std::vector<uint8_t> bytes = reader.read(file);
    return decode_file(bytes, display_name(folder_, file), options_.apply_exif_orientation);
  } catch (const DataError& error) {
    if (options_.skip_bad) throw;
    throw ImageError(error.what());
  }
}

DecodedImage ImageStore::decode_first() const {
  auto reader = readers_->take();
  for (const ClassFolderFile& file : folder_.files) {
    try {
      DecodedImage image = decode(file, *reader);
      readers_->give_back(std::move(reader));
      return image;
    } catch (const DataError&) {
      if (!options_.skip_bad) throw;
    }
  }
  throw DataError(folder_.path, "images", "at least one that can be decoded",
                  std::to_string(folder_.files.size()) + " bad ones");
}

void ImageStore::store(const DecodedImage& image, const ClassFolderFile& file, uint8_t* out) const {
  if (options_.image_size == 0) check_size_of(image, layout_, display_name(folder_, file));
  convert_image(image, layout_, out);
}

/// Returns how many images of the layout fit in the cache.
size_t ImageStore::num_fitting() const {
  return std::min(folder_.files.size(), static_cast<size_t>(options_.cache_bytes) / layout_.bytes());
}

/// Throws std::invalid_argument unless all images fit, which take `image_bytes` each, or more.
void ImageStore::check_fit(size_t image_bytes) const {
  const size_t count = folder_.files.size();
  if (num_fitting() == count) return;
  throw std::invalid_argument("[ImageFolder] cache_bytes: expected " + std::to_string(count * image_bytes) +
                              " or more, so that all " + std::to_string(count) + " images of " +
                              folder_.path + " fit into the cache on a device, but got " +
                              std::to_string(options_.cache_bytes));
}

/// Decodes into the cache. Without `convert`, stops at the first image that does not have the layout already,
/// returns false and leaves the cache empty.
bool ImageStore::fill(bool convert) {
  const size_t image_bytes = layout_.bytes();
  const size_t num_cached = num_fitting();
  auto cache = std::make_unique_for_overwrite<uint8_t[]>(num_cached * image_bytes);
  const size_t num_decoded = options_.skip_bad ? folder_.files.size() : num_cached;
  std::vector<std::string> errors(options_.skip_bad ? num_decoded : 0);
  std::atomic<bool> alike{true};

  const auto is_as_layout = [this](const DecodedImage& image) {
    return std::min(options_.channels, image.channels) == layout_.channels &&
           image.height == layout_.height && image.width == layout_.width;
  };
  const auto decode_block = [&](size_t begin, size_t end) {
    auto reader = readers_->take();
    std::vector<uint8_t> beyond(num_decoded > num_cached ? image_bytes : 0);
    for (size_t index = begin; index < end && alike; ++index) {
      const ClassFolderFile& file = folder_.files[index];
      try {
        const DecodedImage image = decode(file, *reader);
        if (!convert && !is_as_layout(image)) {
          alike = false;
          break;
        }
        store(image, file, index < num_cached ? cache.get() + index * image_bytes : beyond.data());
      } catch (const DataError& error) {
        if (!options_.skip_bad) throw;
        errors[index] = error.what();
      }
    }
    readers_->give_back(std::move(reader));
  };
  try {
    threads_->for_each(num_decoded, kBlockSize, decode_block);
  } catch (const DataError&) {
    // Once layouts differ, blocks are skipped, so another file may be the first bad one.
    if (alike) throw;
  }
  if (!alike) return false;

  cache_ = std::move(cache);
  num_cached_ = num_cached;
  if (options_.skip_bad) remove_bad(errors);
  return true;
}

/// Removes bad files, those with an error, from the folder and the cache.
void ImageStore::remove_bad(const std::vector<std::string>& errors) {
  const size_t image_bytes = layout_.bytes();
  std::vector<ClassFolderFile> good;
  size_t num_cached = 0;
  for (size_t index = 0; index < errors.size(); ++index) {
    if (!errors[index].empty()) {
      skipped_.push_back(errors[index]);
      continue;
    }
    good.push_back(std::move(folder_.files[index]));
    if (index >= num_cached_) continue;
    if (num_cached != index) {
      std::copy_n(cache_.get() + index * image_bytes, image_bytes, cache_.get() + num_cached * image_bytes);
    }
    ++num_cached;
  }
  folder_.files = std::move(good);
  num_cached_ = num_cached;
}

void ImageStore::copy_images(std::span<const size_t> indices, uint8_t* out) const {
  std::vector<size_t> beyond;  // positions in `indices` of images beyond the cache
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < num_cached_) {
      std::copy_n(cache_.get() + indices[i] * layout_.bytes(), layout_.bytes(), out + i * layout_.bytes());
    } else {
      beyond.push_back(i);
    }
  }
  if (beyond.empty()) return;
  threads_->for_each(beyond.size(), /*block_size=*/1, [&](size_t i, size_t) {
    auto reader = readers_->take();
    const ClassFolderFile& file = folder_.files[indices[beyond[i]]];
    store(decode(file, *reader), file, out + beyond[i] * layout_.bytes());
    readers_->give_back(std::move(reader));
  });
}

}  // namespace lockstep
