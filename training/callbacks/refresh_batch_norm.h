#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/strategies/input/distributed_dataset.h"
#include "lockstep/training/trainer/callback.h"
#include "lockstep/training/trainer/measure_statistics.h"
#include "lockstep/training/trainer/trainer_step.h"

namespace lockstep {

struct RefreshBatchNormOptions {
  /// Number of batches to average over; fewer if an epoch of the dataset has fewer.
  int64_t max_batches = 100;
  /// Precision of the forward pass, as in TrainerOptions::autocast.
  at::ScalarType autocast = torch::kFloat;
};

/// Measures the running statistics of batch normalization again before each validation, with the current
/// weights. refresh_batch_norm() makes one.
///
/// In training, running statistics average over the last 10 steps or so. Early on, and at large learning
/// rates, weights change so much within 10 steps that these averages describe none of them, and a model that
/// has learned its training data tests at chance. This is most visible if an epoch has few steps. The
/// callback runs training batches through the model without training it, and sets the statistics of each
/// layer to the mean over the batches. Weights, optimizers and random numbers do not change, and neither does
/// the training that follows, since it uses the statistics of each batch.
///
/// Each replica measures its own shards, as in training; Mirrored::eval() averages over the replicas. Pass
/// it to fit() after a NanGuard, which may undo steps at the end of an epoch.
///
/// Example:
///
///     auto refresh = refresh_batch_norm(trainer.model(), strategy.distribute_dataset(images, options));
///     trainer.fit(batches, {.epochs = 10, .validation = test_batches, .callbacks = {refresh}});
class RefreshBatchNorm : public Callback {
 public:
  /// Refreshes the statistics with the training data's order of this epoch, counted from 0. All workers call
  /// it together.
  using Refresh = std::function<void(Strategy& strategy, int64_t epoch)>;

  explicit RefreshBatchNorm(Refresh refresh) : refresh_(std::move(refresh)) {}
  /// Refreshes the statistics at once, for a loop of your own.
  void refresh(Strategy& strategy, int64_t epoch) const { refresh_(strategy, epoch); }
  void on_epoch_trained(FitState& state) override { refresh(state.strategy(), state.epoch - 1); }

 private:
  Refresh refresh_;
};

namespace detail {

/// Throws InvalidArgument if max_batches is below 1.
void check_refresh_options(const RefreshBatchNormOptions& options);

}  // namespace detail

/// Returns a callback that refreshes `model`, the model of the Trainer, from `batches`. They should be the
/// training data, shuffled and cut into batches as for fit(), in a dataset of their own. `model` must outlive
/// the callback. Throws InvalidArgument if max_batches is below 1.
template <typename Model, typename Batch>
std::shared_ptr<RefreshBatchNorm> refresh_batch_norm(Mirrored<Model>& model,
                                                     DistributedDataset<Batch> batches,
                                                     const RefreshBatchNormOptions& options = {}) {
  detail::check_refresh_options(options);
  auto data = std::make_shared<DistributedDataset<Batch>>(std::move(batches));
  return std::make_shared<RefreshBatchNorm>([&model, data, options](Strategy& strategy, int64_t epoch) {
    data->restore({.epoch = epoch, .step = 0});
    detail::measure_statistics(strategy, model, *data, options.max_batches,
                               [&](ReplicaContext& replica, Model& net, const Batch& shard) {
                                 const auto cast = replica.autocast(options.autocast);
                                 detail::forward(net, shard);
                               });
  });
}

}  // namespace lockstep
