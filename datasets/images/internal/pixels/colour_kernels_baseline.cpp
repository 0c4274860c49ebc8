#include "lockstep/datasets/images/internal/pixels/colour_loops.h"

namespace lockstep {

const ColourKernels* baseline_colour_kernels() {
  return &kColourKernels;
}

}  // namespace lockstep
