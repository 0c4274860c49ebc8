#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "lockstep/runtime/replicas/replica_collectives.h"
#include "lockstep/strategies/nn/internal/batch_norm_kernels.h"

namespace lockstep {

/// A normalisation that is to have a gradient.
struct SyncBatchNormCall {
  std::shared_ptr<const ReplicaCollectives> replica;
  at::Tensor input;   ///< as the module got it
  at::Tensor dense;   ///< the same, contiguous in its memory format; `input` itself where it is that already
  at::Tensor weight;  ///< may be undefined, as may `bias`
  at::Tensor bias;
  batch_norm::Statistics statistics;  ///< undefined tensors for a global batch without values
  double eps = 0;
};

/// Makes the call the origin of its `output`, where a gradient flows from there. Backward is a collective,
/// wherever `input` has a gradient; weight and bias get this replica's part of theirs.
void record_sync_batch_norm(const SyncBatchNormCall& call, at::Tensor& output);

}  // namespace lockstep
