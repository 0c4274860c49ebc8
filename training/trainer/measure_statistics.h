#pragma once

#include <torch/utils.h>

#include <cstdint>
#include <memory>

#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/strategies/input/batch_traits.h"
#include "lockstep/strategies/input/distributed_dataset.h"
#include "lockstep/training/trainer/batch_statistics.h"

namespace lockstep::detail {

/// Measures the running statistics of batch normalization again, with the model's current weights, and sets
/// those of each layer to the mean over the first `max_batches` of `batches`. Calls
/// `forward(replica, model, shard)` on every replica, which measures its own shards. Everything else of the
/// model stays as it is. Does nothing if there are no statistics. All workers must call it together, between
/// runs. See BatchStatistics.
template <typename Model, typename Batch, typename Forward>
void measure_statistics(Strategy& strategy, Mirrored<Model>& model, DistributedDataset<Batch>& batches,
                        int64_t max_batches, const Forward& forward) {
  using Statistics = std::unique_ptr<BatchStatistics>;
  auto statistics = strategy.scope(
      [&](ReplicaContext& replica) { return std::make_unique<BatchStatistics>(*model[replica]); });
  if (!statistics.primary()->has_layers()) return;
  const auto measure = [&forward](ReplicaContext& replica, Model& net, Statistics& layers, bool is_probe,
                                  const Batch& shard) {
    const torch::NoGradGuard no_grad;
    is_probe ? layers->begin_probe() : layers->begin_batch();
    forward(replica, net, shard);
    is_probe ? layers->end_probe() : layers->end_batch(BatchTraits<Batch>::size(shard) == 0);
  };
  int64_t num_batches = 0;
  for (const auto& batch : batches) {
    if (num_batches == 0) strategy.run(measure, model, statistics, true, batch);
    strategy.run(measure, model, statistics, false, batch);
    if (++num_batches == max_batches) break;
  }
  if (num_batches > 0)
    strategy.run([](ReplicaContext&, Statistics& layers) { layers->finish(); }, statistics);
}

}  // namespace lockstep::detail
