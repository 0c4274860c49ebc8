#include "lockstep/runtime/precision/tf32.h"

#include <ATen/Context.h>

namespace lockstep {

Tf32Guard::Tf32Guard(Tf32Use use)
    : products_(at::globalContext().allowTF32CuBLAS()), convolutions_(at::globalContext().allowTF32CuDNN()) {
  at::globalContext().setAllowTF32CuBLAS(use == Tf32Use::kAll);
  at::globalContext().setAllowTF32CuDNN(use != Tf32Use::kNone);
}

Tf32Guard::~Tf32Guard() {
  at::globalContext().setAllowTF32CuBLAS(products_);
  at::globalContext().setAllowTF32CuDNN(convolutions_);
}

}  // namespace lockstep
