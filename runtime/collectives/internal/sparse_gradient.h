#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/runtime/collectives/collective_channel.h"

namespace lockstep {

/// Returns a row-sparse gradient in coalesced form. Does not copy values that already are coalesced, even if
/// the tensor is not marked so: LibTorch loses the mark when it accumulates gradients.
at::Tensor coalesced_rows(const at::Tensor& gradient);

/// Returns the coalesced sum of sparse tensors of the same shape over all ranks, as sum_sparse_gradient()
/// does.
at::Tensor sum_sparse(const ReplicaBackends& channel, const at::Tensor& value);

/// Returns the coalesced sum of one parameter's sparse gradients over all ranks; an undefined `gradient` adds
/// nothing. Gathers each rank's indices and values in rank order, so the result is bit-identical on all
/// ranks. Blocks until all ranks call it.
at::Tensor sum_sparse_gradient(const ReplicaBackends& channel, const at::Tensor& parameter,
                               const at::Tensor& gradient);

}  // namespace lockstep
