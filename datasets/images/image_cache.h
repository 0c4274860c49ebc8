#pragma once

namespace lockstep {

/// Selects the memory in which an ImageFolder keeps its decoded images.
///
/// Example:
///
///     ImageFolder images("photos/train", {.image_size = 64, .cache = ImageCache::kDevice});
enum class ImageCache {
  kHost,    ///< In the host's memory. Every batch is copied to its device, as uint8.
  kDevice,  ///< In each device's memory, too. Only the indices of a batch's images are copied to the device.
};

}  // namespace lockstep
