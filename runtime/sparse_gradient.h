#pragma once

// Internal: only sources of its layer need it.

#include <ATen/core/Tensor.h>

#include "lockstep/runtime/collective_group.h"

namespace lockstep {

/// The sum over all ranks of one parameter's sparse gradients, coalesced; an undefined `gradient` adds
/// nothing. Each rank's indices and values are gathered in rank order, so the result is bit-equal everywhere.
/// Blocks until all ranks call it.
at::Tensor sum_sparse_gradient(const ReplicaChannel& channel, const at::Tensor& parameter,
                               const at::Tensor& gradient);

}  // namespace lockstep
