#include "lockstep/datasets/images/internal/device_images.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "lockstep/datasets/images/internal/image_store.h"

namespace lockstep {
namespace {

/// Returns a view of the store's memory, which is only read.
at::Tensor view_of(const ImageStore& store) {
  return torch::from_blob(
      const_cast<uint8_t*>(store.cached_images()),
      {static_cast<int64_t>(store.num_cached()), static_cast<int64_t>(store.layout().bytes())}, torch::kByte);
}

}  // namespace

/// The images on one device.
struct DeviceImages::Copy {
  explicit Copy(c10::Device on) : device(on) {}

  const c10::Device device;
  std::mutex mutex;                  // held while the copy is made; guards the two below
  at::Tensor images;                 // undefined until then
  std::vector<c10::Stream> readers;  // the allocator knows that these read the images
};

DeviceImages::DeviceImages(std::shared_ptr<const ImageStore> store)
    : store_(std::move(store)), on_host_(view_of(*store_)) {}

DeviceImages::~DeviceImages() = default;

at::Tensor DeviceImages::gather(const at::Tensor& indices) {
  if (indices.dim() != 1 || indices.scalar_type() != at::kLong) {
    throw std::invalid_argument(
        "[ImageFolder] device_transform: expected the indices that get_batch() returns, int64 [n], but got " +
        std::string(c10::toString(indices.scalar_type())) + " " + c10::str(indices.sizes()));
  }
  const ImageLayout& layout = store_->layout();
  return images_on(indices.device())
      .index_select(0, indices)
      .view({indices.size(0), layout.height, layout.width, layout.channels})
      .permute({0, 3, 1, 2});
}

DeviceImages::Copy& DeviceImages::copy_of(c10::Device device) {
  const std::lock_guard lock(mutex_);
  for (Copy& copy : copies_) {
    if (copy.device == device) return copy;
  }
  return copies_.emplace_back(device);
}

at::Tensor DeviceImages::images_on(c10::Device device) {
  if (device.is_cpu()) return on_host_;
  Copy& copy = copy_of(device);
  const std::lock_guard lock(copy.mutex);
  // The host waits for this copy, so work that is given to any stream from now on finds the images. Waiting
  // on the streams instead would not free the host: the store's memory is not pinned.
  if (!copy.images.defined()) copy.images = on_host_.to(device);
  // Without this, the allocator could reuse the memory of the images while another stream than that of the
  // copy still reads them.
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  if (std::find(copy.readers.begin(), copy.readers.end(), stream) == copy.readers.end()) {
    copy.images.record_stream(stream);
    copy.readers.push_back(stream);
  }
  return copy.images;
}

}  // namespace lockstep
