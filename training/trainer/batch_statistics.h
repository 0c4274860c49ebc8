#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <utility>
#include <vector>

namespace lockstep::detail {

/// Averages the statistics of several batches in every batch normalization layer of a module: in each
/// submodule with the buffers running_mean and running_var, of any class. Layers in evaluation mode keep
/// their statistics, since they do not compute those of a batch.
///
/// A layer sets `running` to (1 - momentum) running + momentum batch. A probe finds its momentum, which
/// LibTorch has no common way to ask for.
///
/// While the object lives, only these layers are in training mode, so that dropout draws no random numbers.
/// Not thread-safe. Uses the devices of the buffers, and waits for them in finish() only.
///
/// Example:
///
///     BatchStatistics statistics(*model);
///     statistics.begin_probe();
///     model->forward(batches.front());
///     statistics.end_probe();
///     for (const auto& batch : batches) {
///       statistics.begin_batch();
///       model->forward(batch);
///       statistics.end_batch(batch.size(0) == 0);
///     }
///     statistics.finish();
class BatchStatistics {
 public:
  explicit BatchStatistics(torch::nn::Module& module);
  /// Returns whether there is a layer whose statistics can be measured.
  bool has_layers() const { return !layers_.empty(); }
  /// Restores the modes of all submodules, and the running statistics unless finish() was called.
  ~BatchStatistics();
  BatchStatistics(const BatchStatistics&) = delete;
  BatchStatistics& operator=(const BatchStatistics&) = delete;

  void begin_probe();
  void end_probe();
  void begin_batch();
  /// Counts the batch. A layer that saw no examples does not count it: `is_empty` says that the batch has
  /// none here, although a layer may have seen those of other replicas.
  void end_batch(bool is_empty);
  /// Sets the running statistics to the mean over the batches. A layer keeps those it had if it saw no
  /// examples. num_batches_tracked keeps its value, since nothing was trained.
  void finish();

 private:
  struct Layer {
    torch::Tensor mean, variance, count;  // the buffers; `count` may be undefined
    torch::Tensor old_mean, old_variance, old_count;
    torch::Tensor decay;  // 1 - momentum
    torch::Tensor sum_of_means, sum_of_variances, num_batches;
  };

  void restore_statistics();

  std::vector<std::pair<torch::nn::Module*, bool>> modes_;
  std::vector<Layer> layers_;
  bool is_finished_ = false;
};

}  // namespace lockstep::detail
