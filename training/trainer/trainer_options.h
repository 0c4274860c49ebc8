#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/metrics/metric_list.h"
#include "lockstep/training/trainer/fit_loop.h"
#include "lockstep/training/trainer/trainer_step.h"
#include "lockstep/training/trainer/validation_data.h"

namespace lockstep {

template <typename Model, typename Batch = Example>
struct TrainerOptions {
  /// Dtype in which forward and losses are computed if that is accurate enough; see
  /// ReplicaContext::autocast(). With float16, the loss is scaled.
  at::ScalarType autocast = torch::kFloat;
  /// Captures the steps as CUDA graphs, whose requirements they must then meet; see CudaGraph.
  bool cuda_graph = false;
  /// Computes forward and losses instead of `loss(model->forward(batch.data), batch.target)`, for models with
  /// several inputs and for other batch types.
  ComputeStep<Model, Batch> compute;
  /// Metrics of validation and evaluate() only, in addition to the Trainer's metrics.
  MetricList evaluation_metrics{};
  /// A complete training step of your own. It must handle autocast and float16's scaling itself; fit() throws
  /// InvalidArgument if FitOptions sets clip_norm or micro_batches too.
  TrainStep<Model, Batch> train_step;
  /// Computes forward, losses and backward of training steps, for models that compute both together, such as
  /// a Pipeline. It cuts its shards itself: fit() throws InvalidArgument if FitOptions sets micro_batches,
  /// too. Evaluation calls `compute`. Not together with `train_step`.
  ForwardBackward<Model, Batch> forward_backward;
};

template <typename Batch = Example>
struct FitOptions {
  int64_t epochs = 1;
  /// Steps of an epoch; the next epoch starts in the dataset where this one stopped. If empty, an epoch is
  /// one pass over the dataset.
  std::optional<int64_t> steps_per_epoch;
  /// Data to evaluate after every epoch: a dataset, distributed or not, or `{x, y}`. If it is not distributed
  /// yet, its batches are as large as `batches` says, in the data's order.
  ValidationData<Batch> validation{};
  Callbacks callbacks{};
  /// How to distribute tensors and datasets that are not distributed yet. If you set other fields only, the
  /// global batch size is still 32; the examples are shuffled only if you set a seed.
  DistributeOptions batches = {.global_batch_size = 32, .shuffle_seed = 1};
  /// Scales the summed gradients so that their common L2 norm is at most this value.
  std::optional<double> clip_norm;
  /// Number of pieces in which each replica computes its shard (gradient accumulation). Their gradients are
  /// added up before they are summed over the replicas, so that a larger global batch fits into memory. The
  /// step equals that of the whole shard, except for rounding and for BatchNorm, which sees the pieces.
  int64_t micro_batches = 1;
  /// Epochs that an earlier fit finished; numbering and schedules continue from there. `steps_done` likewise.
  int64_t epochs_done = 0;
  int64_t steps_done = 0;
};

namespace detail {

/// The numbers in FitOptions and in the dataset.
struct FitNumbers {
  int64_t epochs;
  std::optional<int64_t> steps_per_epoch;
  std::optional<double> clip_norm;
  int64_t micro_batches;
  int64_t epochs_done;
  int64_t steps_done;
  bool has_own_step;
  bool has_own_backward;
  bool is_endless;
};

/// Throws InvalidArgument if a number is out of range or does not fit the others.
void check_fit_options(const FitNumbers& numbers);
/// Returns options for the training data, with fit()'s default if the caller gave no batch size.
DistributeOptions training_batches(DistributeOptions options);
/// Returns the same for the validation data, in its own order and whole.
DistributeOptions validation_batches(const DistributeOptions& options);
/// Returns the names of the logs of each epoch. `validation` are the metrics of the validation, null if there
/// is none.
std::vector<std::string> log_names(const MetricList& training, const MetricList* validation,
                                   bool has_gradient_norm);
/// Throws InvalidArgument if two metrics have the same name, if one has a name that the logs use themselves,
/// and if a CUDA graph cannot capture one.
void check_metrics(const MetricList& metrics, bool cuda_graph);

}  // namespace detail
}  // namespace lockstep
