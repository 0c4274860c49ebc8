#pragma once

namespace lockstep {

/// While it lives, float32 products and convolutions on GPUs may round their inputs to TF32 (10 bits of
/// mantissa, sums in float32), or may not, as `allowed` says: LibTorch's own settings, which are the whole
/// process's. By default LibTorch allows it for convolutions alone. Changes nothing on a CPU, and on a GPU
/// that has no TF32 (before Ampere).
///
/// Make and destroy it while no replica runs.
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
