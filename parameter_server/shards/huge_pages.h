#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Memory like the tensor's, contiguous and without values, for what is read and written at random places:
/// where it is large, the system is asked for huge pages, since looking up one of so many small ones would
/// take longer than reading the row in it. Of the CPU.
at::Tensor empty_for_random_access(const at::Tensor& like);

}  // namespace lockstep
