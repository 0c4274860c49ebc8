#pragma once

namespace lockstep {

/// Allows or forbids, while it lives, that float32 products and convolutions on GPUs round their inputs to
/// TF32 (10 bits of mantissa; sums in float32). It sets LibTorch's own settings, which hold for the whole
/// process. LibTorch's default allows TF32 for convolutions only. Does nothing on a CPU, and on GPUs without
/// TF32 (before Ampere).
///
/// Make and destroy it while no replica runs.
///
/// Example:
///
///     const Tf32Guard tf32(/*allowed=*/true);
///     strategy.run(train_step, model, optimizer, batch);
class Tf32Guard {
 public:
  explicit Tf32Guard(bool allowed);
  ~Tf32Guard();
  Tf32Guard(const Tf32Guard&) = delete;
  Tf32Guard& operator=(const Tf32Guard&) = delete;

 private:
  bool products_;
  bool convolutions_;
};

}  // namespace lockstep
