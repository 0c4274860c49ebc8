#include "lockstep/datasets/images/internal/pixels/colour_kernels.h"

namespace lockstep {

const ColourKernels& colour_kernels() {
  static const ColourKernels& chosen = []() -> const ColourKernels& {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return *avx2_colour_kernels();
#endif
    return *baseline_colour_kernels();
  }();
  return chosen;
}

}  // namespace lockstep
