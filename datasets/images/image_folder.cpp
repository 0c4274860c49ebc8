#include "lockstep/datasets/images/image_folder.h"

#include <torch/data/example.h>
#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <utility>

#include "lockstep/datasets/files/internal/data_checksum.h"
#include "lockstep/datasets/images/internal/class_folder.h"
#include "lockstep/datasets/images/internal/device_images.h"
#include "lockstep/datasets/images/internal/image_store.h"
#include "lockstep/datasets/tensors/collated_dataset.h"
#include "lockstep/datasets/tensors/tensor_dataset.h"

namespace lockstep {

static_assert(CollatedDataset<ImageFolder>);

namespace {

namespace fs = std::filesystem;

void check_not_negative(const char* field, int64_t value) {
  if (value < 0) {
    throw std::invalid_argument(std::string("[ImageFolder] ") + field + ": expected 0 or more, but got " +
                                std::to_string(value));
  }
}

/// Keeps `limit` files: the first of every class, the second of every class, and so on.
void limit_files(ClassFolder& folder, int64_t limit) {
  if (limit == 0 || static_cast<size_t>(limit) >= folder.files.size()) return;
  struct Turn {
    size_t round;  // position within the class
    size_t file;
  };
  std::vector<Turn> turns;
  std::vector<size_t> seen(folder.classes.size(), 0);
  for (size_t file = 0; file < folder.files.size(); ++file) {
    turns.push_back({.round = seen[static_cast<size_t>(folder.files[file].label)]++, .file = file});
  }
  std::stable_sort(turns.begin(), turns.end(),
                   [](const Turn& a, const Turn& b) { return a.round < b.round; });
  turns.resize(static_cast<size_t>(limit));
  std::sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) { return a.file < b.file; });
  std::vector<ClassFolderFile> kept;
  for (const Turn& turn : turns) kept.push_back(std::move(folder.files[turn.file]));
  folder.files = std::move(kept);
}

bool is_on_devices(const ImageFolderOptions& options) {
  return options.cache == ImageCache::kDevice;
}

std::shared_ptr<const ImageStore> open_store(const std::string& path, const ImageFolderOptions& options) {
  check_not_negative("limit", options.limit);
  check_not_negative("cache_bytes", options.cache_bytes);
  check_not_negative("num_threads", options.num_threads);
  ClassFolder folder = list_class_folder(path);
  limit_files(folder, options.limit);
  return std::make_shared<const ImageStore>(
      std::move(folder), ImageStoreOptions{.channels = options.channels,
                                           .image_size = options.image_size,
                                           .num_threads = options.num_threads,
                                           .cache_bytes = options.cache_bytes,
                                           .skip_bad = options.skip_bad,
                                           .apply_exif_orientation = options.apply_exif_orientation,
                                           .must_fit = is_on_devices(options)});
}

/// Reads the sampled files now, because they may be gone when the identity is asked for.
std::string identity_of(const ClassFolder& folder) {
  DataChecksum checksum;
  for (const auto& name : folder.classes) checksum.add(name);
  for (const auto& file : folder.files) {
    checksum.add(&file.label, sizeof file.label);
    checksum.add(fs::path(file.entry.name).filename().string());
  }
  if (folder.files.empty()) return "no images";
  ClassFolderReader reader(folder);
  const size_t last = folder.files.size() - 1;
  for (const size_t sampled : {size_t{0}, last / 2, last}) {
    const auto bytes = reader.read(folder.files[sampled]);
    checksum.add(bytes.data(), bytes.size());
  }
  return "images in " + std::to_string(folder.classes.size()) + " classes (checksum " + checksum.text() + ")";
}

at::Tensor labels_of(const ImageStore& store, c10::ArrayRef<size_t> indices) {
  at::Tensor labels = torch::empty({static_cast<int64_t>(indices.size())}, torch::kLong);
  auto* label = labels.mutable_data_ptr<int64_t>();
  for (const size_t index : indices) *label++ = store.folder().files[index].label;
  return labels;
}

}  // namespace

ImageFolder::ImageFolder(const std::string& path, const ImageFolderOptions& options)
    : transform_(make_transform(options)),
      store_(open_store(path, options)),
      on_devices_(is_on_devices(options) ? std::make_shared<DeviceImages>(store_) : nullptr),
      identity_(identity_of(store_->folder())) {}

std::optional<size_t> ImageFolder::size() const {
  return store_->folder().files.size();
}

torch::data::Example<> ImageFolder::get_batch(c10::ArrayRef<size_t> indices) const {
  if (on_devices_ == nullptr) return get_images(indices);
  check_indices(indices, *size(), "ImageFolder");
  at::Tensor data = torch::empty({static_cast<int64_t>(indices.size())}, torch::kLong);
  std::copy(indices.begin(), indices.end(), data.mutable_data_ptr<int64_t>());
  return {data, labels_of(*store_, indices)};
}

torch::data::Example<> ImageFolder::device_transform(torch::data::Example<> batch) const {
  const at::Tensor images = on_devices_ == nullptr ? batch.data : on_devices_->gather(batch.data);
  return {transform_(images), std::move(batch.target)};
}

torch::data::Example<> ImageFolder::get_images(c10::ArrayRef<size_t> indices) const {
  check_indices(indices, *size(), "ImageFolder");
  const ImageLayout& layout = store_->layout();
  // The store holds the channels of a pixel side by side, which is what channels_last means.
  at::Tensor data =
      torch::empty({static_cast<int64_t>(indices.size()), layout.channels, layout.height, layout.width},
                   torch::TensorOptions(torch::kByte).memory_format(at::MemoryFormat::ChannelsLast));
  store_->copy_images(std::span(indices.data(), indices.size()), data.mutable_data_ptr<uint8_t>());
  return {data, labels_of(*store_, indices)};
}

const std::vector<std::string>& ImageFolder::classes() const {
  return store_->folder().classes;
}

const std::vector<std::string>& ImageFolder::skipped() const {
  return store_->skipped();
}

const IgnoredFiles& ImageFolder::ignored_files() const {
  return store_->folder().ignored;
}

}  // namespace lockstep
