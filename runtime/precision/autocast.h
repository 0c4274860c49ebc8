#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace lockstep {

/// While it lives, the calling thread's products and convolutions on one type of device compute in a shorter
/// floating type, and operators that lose too much by it in float32, as under torch.autocast: LibTorch's
/// lists say which are which. Parameters stay as they are. Then everything is as before, in this thread; no
/// other thread notices but those of a Strategy::run() called under it, which compute as the caller does.
///
/// Backward computes each operator in the type that its forward had, so end the guard before backward.
class AutocastGuard {
 public:
  /// `dtype`: torch::kBFloat16 or torch::kFloat16; torch::kFloat32 casts nothing, also inside another guard.
  /// Throws InvalidArgument for any other.
  AutocastGuard(c10::DeviceType device, c10::ScalarType dtype);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  bool was_cache_enabled_;
  c10::ScalarType previous_dtype_;
};

}  // namespace lockstep
