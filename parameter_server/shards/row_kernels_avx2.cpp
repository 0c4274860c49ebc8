#include "lockstep/parameter_server/shards/row_loops.h"

namespace lockstep {

const RowKernelSet* avx2_row_kernels() {
#if defined(__x86_64__)
  return &kRowKernels;
#else
  return nullptr;
#endif
}

}  // namespace lockstep
