#include "lockstep/parameter_server/shards/row_loops.h"

namespace lockstep {

const RowKernelSet* baseline_row_kernels() {
  return &kRowKernels;
}

}  // namespace lockstep
