#include "lockstep/parameter_server/row_loops.h"

namespace lockstep {

const RowKernelSet* baseline_row_kernels() {
  return &kRowKernels;
}

}  // namespace lockstep
