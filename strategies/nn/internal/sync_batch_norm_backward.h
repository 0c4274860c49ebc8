#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "lockstep/runtime/replicas/replica_collectives.h"
#include "lockstep/strategies/nn/internal/batch_norm_kernels.h"

namespace lockstep {

/// A normalisation that needs a gradient.
struct SyncBatchNormCall {
  std::shared_ptr<const ReplicaCollectives> replica;
  at::Tensor input;  ///< as passed to the module
  /// The input made contiguous in its memory format; `input` itself if it already is.
  at::Tensor dense;
  at::Tensor weight;  ///< may be undefined, like `bias`
  at::Tensor bias;
  batch_norm::Statistics statistics;  ///< undefined tensors if the global batch has no values
  double eps = 0;
};

/// Records the call as the origin of `output` for autograd, if a gradient is needed. Backward is a collective
/// if `input` requires a gradient; weight and bias get this replica's part of theirs.
void record_sync_batch_norm(const SyncBatchNormCall& call, at::Tensor& output);

}  // namespace lockstep
