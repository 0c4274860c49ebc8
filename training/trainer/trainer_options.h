#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/metrics/metric_list.h"
#include "lockstep/training/trainer/fit_loop.h"
#include "lockstep/training/trainer/trainer_step.h"

namespace lockstep {

template <typename Model, typename Batch = Example>
struct TrainerOptions {
  /// Forward and losses are computed in it where that is accurate enough, see ReplicaContext::autocast();
  /// with float16 the loss is scaled.
  at::ScalarType autocast = torch::kFloat;
  /// Captures the steps as CUDA graphs, see CudaGraph, whose conditions they then have to meet.
  bool cuda_graph = false;
  /// Forward and losses, in place of `loss(model->forward(batch.data), batch.target)`: for models with
  /// several inputs, and for batches of another type.
  ComputeStep<Model, Batch> compute;
  /// Taken over validation and evaluate() only, besides the metrics.
  MetricList evaluation_metrics{};
  /// A whole training step of the user's own. FitOptions' clip_norm and micro_batches, autocast and float16's
  /// scaling are then its own affair.
  TrainStep<Model, Batch> train_step;
};

template <typename Batch = Example>
struct FitOptions {
  int64_t epochs = 1;
  /// Steps of an epoch; the next one goes on in the dataset where this one stopped. None: one pass over it.
  std::optional<int64_t> steps_per_epoch;
  /// Evaluated after every epoch.
  std::optional<DistributedDataset<Batch>> validation;
  Callbacks callbacks;
  /// Of datasets that are not distributed yet, and of tensors.
  DistributeOptions batches = {.global_batch_size = 32, .shuffle_seed = 1};
  /// Scales the summed gradients so that their common L2 norm is at most this.
  std::optional<double> clip_norm;
  /// Gradient accumulation: each replica computes its shard in so many pieces, whose gradients are added up
  /// before they are summed over the replicas, so that a larger global batch fits into memory. The step is
  /// the one that the whole shard would make, but for rounding, and for BatchNorm, which sees the pieces.
  int64_t micro_batches = 1;
  /// Epochs that an earlier fit has done already, and steps: numbers and schedules go on from there.
  int64_t epochs_done = 0;
  int64_t steps_done = 0;
};

namespace detail {

/// What FitOptions and the dataset say in numbers.
struct FitNumbers {
  int64_t epochs;
  std::optional<int64_t> steps_per_epoch;
  std::optional<double> clip_norm;
  int64_t micro_batches;
  int64_t epochs_done;
  int64_t steps_done;
  bool has_own_step;
  bool is_endless;
};

/// Throws InvalidArgument for one out of range.
void check_fit_options(const FitNumbers& numbers);
/// Throws InvalidArgument for two of the same name, and for one that a CUDA graph cannot capture.
void check_metrics(const MetricList& metrics, bool cuda_graph);

}  // namespace detail
}  // namespace lockstep
