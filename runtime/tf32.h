#pragma once

namespace lockstep {

/// While it lives, float32 products and convolutions on GPUs round their inputs to TF32 (10 bits of mantissa)
/// and sum in float32: LibTorch's own setting, which is one for the whole process. LibTorch allows it for
/// convolutions already. Changes nothing on a CPU, and on a GPU that has no TF32 (before Ampere).
///
/// Make and destroy it while no replica runs.
class Tf32Guard {
 public:
  Tf32Guard();
  ~Tf32Guard();
  Tf32Guard(const Tf32Guard&) = delete;
  Tf32Guard& operator=(const Tf32Guard&) = delete;

 private:
  bool products_;
  bool convolutions_;
};

}  // namespace lockstep
