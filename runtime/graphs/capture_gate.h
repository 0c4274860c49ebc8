#pragma once

#include <c10/core/Device.h>

#include <vector>

namespace lockstep {

/// Marks, while it lives, that the calling thread captures work of `device`. Blocks until no UncapturedGuard
/// of the device is left; any number of captures may run at the same time.
///
/// While a GPU's work is captured, LibTorch lets no other thread draw from the GPU's default generator, which
/// every capture takes over. So random operators that prepare batches wait for the end of a capture, and
/// vice versa.
///
/// Example:
///
///     const CaptureGuard capturing(replica.device());
///     graph->begin_capture();
class CaptureGuard {
 public:
  explicit CaptureGuard(c10::Device device);
  ~CaptureGuard();
  CaptureGuard(const CaptureGuard&) = delete;
  CaptureGuard& operator=(const CaptureGuard&) = delete;

 private:
  const c10::Device device_;
};

/// Marks, while it lives, that the calling thread may draw from default generators of `devices`. Blocks until
/// no work of these devices is captured. The thread must not wait for a capture while it holds the guard.
///
/// Example:
///
///     const UncapturedGuard uncaptured({images.device()});
///     images = images + 0.1 * torch::randn_like(images);
class UncapturedGuard {
 public:
  explicit UncapturedGuard(std::vector<c10::Device> devices);
  ~UncapturedGuard();
  UncapturedGuard(const UncapturedGuard&) = delete;
  UncapturedGuard& operator=(const UncapturedGuard&) = delete;

 private:
  const std::vector<c10::Device> devices_;
};

}  // namespace lockstep
