#include "lockstep/runtime/precision/tf32.h"

#include <ATen/Context.h>

namespace lockstep {

Tf32Guard::Tf32Guard(bool allowed)
    : products_(at::globalContext().allowTF32CuBLAS()), convolutions_(at::globalContext().allowTF32CuDNN()) {
  at::globalContext().setAllowTF32CuBLAS(allowed);
  at::globalContext().setAllowTF32CuDNN(allowed);
}

Tf32Guard::~Tf32Guard() {
  at::globalContext().setAllowTF32CuBLAS(products_);
  at::globalContext().setAllowTF32CuDNN(convolutions_);
}

}  // namespace lockstep
