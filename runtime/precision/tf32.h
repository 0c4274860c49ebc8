#pragma once

#include <cstdint>

namespace lockstep {

/// Operations on GPUs that may round float32 inputs to TF32 (10 bits of mantissa; sums in float32).
enum class Tf32Use : uint8_t {
  kNone,          ///< No operation; float32 as IEEE 754 defines it.
  kConvolutions,  ///< Convolutions only, which is LibTorch's and PyTorch's default.
  kAll,           ///< Convolutions and matrix products.
};

/// Sets, while it lives, which operations use TF32. The settings are LibTorch's own and hold for the whole
/// process. Does nothing on a CPU, and on GPUs without TF32 (before Ampere).
///
/// Make and destroy it while no replica runs.
///
/// Example:
///
///     const Tf32Guard tf32(Tf32Use::kAll);
///     strategy.run(train_step, model, optimizer, batch);
class Tf32Guard {
 public:
  explicit Tf32Guard(Tf32Use use);
  ~Tf32Guard();
  Tf32Guard(const Tf32Guard&) = delete;
  Tf32Guard& operator=(const Tf32Guard&) = delete;

 private:
  bool products_;
  bool convolutions_;
};

}  // namespace lockstep
