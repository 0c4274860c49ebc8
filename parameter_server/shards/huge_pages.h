#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Returns an uninitialised contiguous CPU tensor of the same shape and dtype, for random access. If it is
/// large, asks the system for huge pages: with many small pages, the address lookup would take longer than
/// reading the row.
at::Tensor empty_for_random_access(const at::Tensor& like);

}  // namespace lockstep
