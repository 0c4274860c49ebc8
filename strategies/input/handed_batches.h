#pragma once

#include <c10/util/Exception.h>
#include <torch/types.h>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/per_replica.h"
#include "lockstep/strategies/input/batch_traits.h"
#include "lockstep/strategies/input/input_streams.h"

namespace lockstep {

/// Keeps batches that were made on separate streams until nobody else uses them, so that those streams reuse
/// their memory only after the work that they were used in. That takes one event a step and GPU, where
/// Tensor::record_stream() takes one for each tensor, and holds memory back longer.
///
/// Use it from the thread that works with the batches.
///
/// Example:
///
///     HandedBatches<Example> handed(streams);
///     while (auto batch = prefetcher.next()) {
///       handed.add(*batch);
///       strategy.run(train_step, model, optimizer, *batch);
///     }
template <typename Batch>
class HandedBatches {
 public:
  explicit HandedBatches(std::shared_ptr<const InputStreams> streams) : streams_(std::move(streams)) {}
  /// Batches that are still used elsewhere keep their memory until the calling thread's current streams have
  /// done what work they have when the last user drops it.
  ~HandedBatches() {
    try {
      drop_unused();
      for (const auto& batch : batches_) {
        for (const auto* tensor : tensors_of(batch)) streams_->keep_for_current_stream(*tensor);
      }
    } catch (const c10::Error&) {
      // The device has failed, which its next use reports.
    }
  }
  HandedBatches(const HandedBatches&) = delete;
  HandedBatches& operator=(const HandedBatches&) = delete;

  /// Keeps a batch that the calling thread is about to use, and drops those that are no longer used.
  void add(const PerReplica<Batch>& batch) {
    drop_unused();
    batches_.push_back(batch);
  }

 private:
  static std::vector<const torch::Tensor*> tensors_of(const PerReplica<Batch>& batch) {
    std::vector<const torch::Tensor*> tensors;
    for (const auto& shard : batch.local_values())
      BatchTraits<Batch>::for_each_tensor(shard,
                                          [&](const torch::Tensor& tensor) { tensors.push_back(&tensor); });
    return tensors;
  }

  void drop_unused() {
    if (batches_.empty()) return;
    streams_->follow_current();
    std::erase_if(batches_, [](const auto& batch) { return are_unshared(tensors_of(batch)); });
  }

  const std::shared_ptr<const InputStreams> streams_;
  std::deque<PerReplica<Batch>> batches_;
};

}  // namespace lockstep
