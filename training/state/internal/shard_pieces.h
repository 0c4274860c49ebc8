#pragma once

#include <torch/types.h>

#include <vector>

#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/training/state/internal/divided_tensor.h"

namespace lockstep {

/// Returns where the elements of a shard, or of a tensor like it, are in the whole parameter. A slice of rows
/// that were cut along a dimension becomes a few boxes.
std::vector<TensorPiece> pieces_of_shard(const torch::Tensor& own, const ShardedParameter& shard);

}  // namespace lockstep
