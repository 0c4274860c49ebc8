#pragma once

#include <torch/types.h>

#include <vector>

#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/runtime/replicas/per_replica.h"
#include "lockstep/strategies/input/batch_traits.h"

namespace lockstep {

/// Examples 0 to n - 1: each has its number as [1, 1] float64 data and as its target.
inline TensorDataset numbered_dataset(int64_t n) {
  return TensorDataset(torch::arange(n, torch::kDouble).unsqueeze(1), torch::arange(n));
}

using Numbers = std::vector<int64_t>;

inline Numbers numbers_of(const torch::Tensor& targets) {
  return Numbers(targets.data_ptr<int64_t>(), targets.data_ptr<int64_t>() + targets.numel());
}

/// Each replica's examples in one batch.
inline std::vector<Numbers> shards_of(const PerReplica<Example>& batch) {
  std::vector<Numbers> shards;
  for (const auto& shard : batch.local_values()) shards.push_back(numbers_of(shard.target.contiguous()));
  return shards;
}

/// Each replica's examples in each batch of one loop over `batches`, which ends after `limit` batches.
template <typename Batches>
std::vector<std::vector<Numbers>> epoch_of(Batches& batches, int64_t limit = 1000) {
  std::vector<std::vector<Numbers>> steps;
  if (limit == 0) return steps;
  for (const auto& batch : batches) {
    steps.push_back(shards_of(batch));
    if (static_cast<int64_t>(steps.size()) == limit) break;
  }
  return steps;
}

/// All examples of an epoch in the order of batches and replicas.
inline Numbers flat(const std::vector<std::vector<Numbers>>& steps) {
  Numbers numbers;
  for (const auto& shards : steps) {
    for (const auto& shard : shards) numbers.insert(numbers.end(), shard.begin(), shard.end());
  }
  return numbers;
}

}  // namespace lockstep
