#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/runtime/collectives/collective_channel.h"

namespace lockstep {

/// A gradient that is sparse in its rows, coalesced; the same values where it is so already, also where
/// nobody has noted that: LibTorch forgets it where it accumulates a gradient.
at::Tensor coalesced_rows(const at::Tensor& gradient);

/// The sum over all ranks of one parameter's sparse gradients, coalesced; an undefined `gradient` adds
/// nothing. Each rank's indices and values are gathered in rank order, so the result is bit-equal everywhere.
/// Blocks until all ranks call it.
at::Tensor sum_sparse_gradient(const ReplicaBackends& channel, const at::Tensor& parameter,
                               const at::Tensor& gradient);

}  // namespace lockstep
