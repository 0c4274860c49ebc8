#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <list>
#include <memory>
#include <mutex>
#include <vector>

namespace lockstep {

class ImageStore;

/// All images of a store in the memory of each device that asks for some of them. A device's copy is made
/// when the device first asks, and kept as long as this object. The CPU uses the store's own memory.
/// Thread-safe.
class DeviceImages {
 public:
  /// The store must hold all its images in memory.
  explicit DeviceImages(std::shared_ptr<const ImageStore> store);
  ~DeviceImages();
  DeviceImages(const DeviceImages&) = delete;
  DeviceImages& operator=(const DeviceImages&) = delete;

  /// Returns these images, uint8 [n, channels, height, width] in channels_last memory format, on the device
  /// of `indices`, int64 [n]. n may be 0. The first call for a device copies all images there, and blocks
  /// until they have arrived; other calls for this device wait for that. Later calls do not block. Throws
  /// std::invalid_argument for indices of another type or shape, and LibTorch's error if the device has too
  /// little memory; the next call then tries again.
  at::Tensor gather(const at::Tensor& indices);

 private:
  struct Copy;

  Copy& copy_of(c10::Device device);
  at::Tensor images_on(c10::Device device);

  const std::shared_ptr<const ImageStore> store_;
  const at::Tensor on_host_;  // the store's memory, [images, bytes of an image]
  std::mutex mutex_;
  std::list<Copy> copies_;  // guarded by mutex_; what is in one of them, by that one's mutex
};

}  // namespace lockstep
