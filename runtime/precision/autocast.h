#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace lockstep {

/// Computes products and convolutions in a shorter floating-point type while it lives, and operators that
/// would lose too much by it in float32, as torch.autocast does. LibTorch's lists decide which operators
/// these are. It affects one type of device and the calling thread, plus the threads of a Strategy::run()
/// that this thread calls meanwhile. Parameters keep their dtype. The destructor restores the previous
/// settings.
///
/// Example:
///
///     torch::Tensor loss;
///     {
///       const AutocastGuard cast(torch::kCUDA, torch::kBFloat16);
///       loss = torch::nll_loss(model->forward(images), labels);
///     }
///
/// Backward computes each operator in the type of its forward, so end the guard before backward.
class AutocastGuard {
 public:
  /// `dtype` is torch::kBFloat16, torch::kFloat16, or torch::kFloat32, which casts nothing, even inside
  /// another guard. Throws InvalidArgument for any other.
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
