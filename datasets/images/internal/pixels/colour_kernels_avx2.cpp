#include "lockstep/datasets/images/internal/pixels/colour_loops.h"

namespace lockstep {

const ColourKernels* avx2_colour_kernels() {
#if defined(__x86_64__)
  return &kColourKernels;
#else
  return nullptr;
#endif
}

}  // namespace lockstep
