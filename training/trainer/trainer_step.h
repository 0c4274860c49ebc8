#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/runtime/replicas/replica_context.h"
#include "lockstep/strategies/input/batch_traits.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/strategies/parallel/pipeline_block.h"
#include "lockstep/training/trainer/step_error.h"
#include "lockstep/training/trainer/step_meters.h"
#include "lockstep/training/trainer/step_outputs.h"

namespace lockstep {

/// Computes the loss of each example, [n] or [n, ...], from a model's outputs and the targets.
using LossFunction = std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& targets)>;

/// Computes forward and losses of one shard.
template <typename Model, typename Batch>
using ComputeStep = std::function<StepOutputs(ReplicaContext&, Model&, const Batch&)>;

/// Settings of a Trainer for code that computes losses and backward.
struct BackwardOptions {
  at::ScalarType autocast = torch::kFloat;  ///< for forward and losses; see ReplicaContext::autocast()
  GradScaler* scaler = nullptr;             ///< Scales the loss before backward. Null: it is not scaled.
};

/// Computes forward, losses and backward of one shard, whose gradients add up to those of
/// compute_average_loss().
template <typename Model, typename Batch>
using ForwardBackward =
    std::function<StepOutputs(ReplicaContext&, Model&, const Batch&, const BackwardOptions&)>;

/// A training step of your own: forward, losses, backward and apply_gradients().
template <typename Model, typename Batch>
using TrainStep = std::function<StepOutputs(ReplicaContext&, Model&, torch::optim::Optimizer&, const Batch&)>;

namespace detail {

/// Settings that all replicas share and that each run may change; constants of a captured step.
struct StepSettings {
  at::ScalarType autocast = torch::kFloat;
  std::optional<double> clip_norm;
  int64_t micro_batches = 1;
  bool has_scaler = false;
  bool operator==(const StepSettings&) const = default;
};

/// Functions that a replica's step calls, and the meters that it updates.
template <typename Model, typename Batch>
struct StepState {
  ComputeStep<Model, Batch> compute;
  TrainStep<Model, Batch> train_step;              // if empty, the step is compute, backward, apply
  ForwardBackward<Model, Batch> forward_backward;  // if not empty, in place of compute and backward
  LossFunction loss;                               // of compute; empty if compute is the user's
  StepMeters meters;
  template <typename Visit>
  void for_each_tensor(const Visit& visit) const {
    meters.for_each_tensor(visit);
  }
};

/// Returns a batch's data, or the batch itself if it is a tensor.
template <typename Batch>
const torch::Tensor& data_of(const Batch& batch) {
  if constexpr (std::is_same_v<Batch, torch::Tensor>) {
    return batch;
  } else {
    return batch.data;
  }
}

/// Returns the model's outputs for a batch.
template <typename Model, typename Batch>
torch::Tensor forward(Model& model, const Batch& batch) {
  return model->forward(data_of(batch));
}

/// Models that compute several batches in less time than one after another, such as a Pipeline.
template <typename Model>
concept StreamsBatches =
    requires(Model& model, const PipelineInputs& inputs,
             const std::function<void(size_t batch, const torch::Tensor& result)>& take) {
  model->stream(inputs, take);
};

/// Batches that such a model gets at once. Ranks of p stages and m micro-batches then wait at most for
/// (p - 1) / (8 m + p - 1) of the time.
inline constexpr size_t kStreamedBatches = 8;

/// Returns the outputs of a step with the losses of whole examples, without gradients. If the ranks of a
/// replica have different tokens of the same examples, each has computed the losses of its own, and this
/// blocks until all of them have called it.
StepOutputs with_whole_losses(ReplicaContext& replica, const StepOutputs& outputs);

template <typename Batch>
Batch micro_batch(const Batch& shard, int64_t index, int64_t count) {
  if constexpr (requires { BatchTraits<Batch>::slice(shard, 0, 0); }) {
    const int64_t size = BatchTraits<Batch>::size(shard);
    return BatchTraits<Batch>::slice(shard, index * size / count, (index + 1) * size / count);
  } else {
    throw InvalidArgument("[fit] expected BatchTraits with slice() for micro-batches, but these have none");
  }
}

template <typename Model, typename Batch>
void train_on(ReplicaContext& replica, Model& model, std::unique_ptr<torch::optim::Optimizer>& optimizer,
              GradScaler& scaler, StepState<Model, Batch>& state, const StepSettings& settings,
              const Batch& shard) {
  if (state.train_step) {
    const auto outputs = with_whole_losses(replica, state.train_step(replica, model, *optimizer, shard));
    state.meters.update(outputs);
    state.meters.finite.update(outputs.losses);
    return;
  }
  optimizer->zero_grad();
  const auto backward = [&](const Batch& batch) {
    StepOutputs outputs;
    {
      const auto cast = replica.autocast(settings.autocast);
      outputs = state.compute(replica, model, batch);
    }
    const auto loss = compute_average_loss(replica, outputs.losses);
    (settings.has_scaler ? scaler.scale(loss) : loss).backward();
    // Runs while other replicas may still be summing.
    outputs = with_whole_losses(replica, outputs);
    state.meters.update(outputs);
    return outputs.losses.detach();
  };
  // All replicas compute the same number of pieces, because a module may take part in a collective in each.
  // More pieces than the largest shard has examples would be empty on all replicas.
  const int64_t global = replica.global_batch_size().value_or(BatchTraits<Batch>::size(shard));
  const int64_t largest = (global + replica.num_replicas() - 1) / replica.num_replicas();
  const int64_t count = std::clamp<int64_t>(largest, 1, settings.micro_batches);
  std::vector<torch::Tensor> losses;
  if (state.forward_backward) {
    auto outputs = state.forward_backward(
        replica, model, shard,
        {.autocast = settings.autocast, .scaler = settings.has_scaler ? &scaler : nullptr});
    outputs = with_whole_losses(replica, outputs);
    state.meters.update(outputs);
    losses.push_back(outputs.losses.detach());
  } else {
    for (int64_t i = 0; i + 1 < count; ++i) {
      const auto hold = replica.accumulate();
      losses.push_back(backward(micro_batch(shard, i, count)).reshape({-1}));
    }
    losses.push_back(backward(count == 1 ? shard : micro_batch(shard, count - 1, count)).reshape({-1}));
  }
  const auto norm = replica.apply_gradients(
      *optimizer, {.clip_norm = settings.clip_norm, .scaler = settings.has_scaler ? &scaler : nullptr});
  if (settings.has_scaler) scaler.update();
  if (norm.defined()) {
    // A step that the scaler skipped has no norm.
    const auto is_finite = settings.has_scaler ? norm.isfinite() : torch::ones_like(norm, torch::kBool);
    state.meters.gradient_norm.update(torch::where(is_finite, norm, torch::zeros_like(norm)), is_finite);
  }
  state.meters.finite.update(losses.size() == 1 ? losses.front() : torch::cat(losses));
}

template <typename Model, typename Batch>
void fit_step(ReplicaContext& replica, Model& model, std::unique_ptr<torch::optim::Optimizer>& optimizer,
              GradScaler& scaler, StepState<Model, Batch>& state, const StepSettings& settings,
              const Batch& shard) {
  with_step_errors("a training step", replica, shard,
                   [&] { train_on(replica, model, optimizer, scaler, state, settings, shard); });
}

template <typename Model, typename Batch>
void test_step(ReplicaContext& replica, Model& model, StepState<Model, Batch>& state,
               const StepSettings& settings, const Batch& shard) {
  with_step_errors("an evaluation step", replica, shard, [&] {
    const auto cast = replica.autocast(settings.autocast);
    state.meters.update(with_whole_losses(replica, state.compute(replica, model, shard)));
  });
}

/// Lets the model see a shard, for the statistics that it keeps while training.
template <typename Model, typename Batch>
void statistics_step(ReplicaContext& replica, Model& model, StepState<Model, Batch>& state,
                     const StepSettings& settings, const Batch& shard) {
  if (!state.compute) {
    throw InvalidArgument(
        "[update_batch_norm] expected TrainerOptions::compute with a train_step for batches of this type");
  }
  const auto cast = replica.autocast(settings.autocast);
  state.compute(replica, model, shard);
}

template <typename Model, typename Batch>
torch::Tensor predict_step(ReplicaContext& replica, Model& model, const StepSettings& settings,
                           const Batch& shard) {
  return with_step_errors("a prediction", replica, shard, [&] {
    const auto cast = replica.autocast(settings.autocast);
    return forward(model, shard);
  });
}

/// Calls `take` with the model's outputs for each of the shards, which belong to batches from `first_batch`
/// on.
template <typename Model, typename Batch, typename Take>
void stream_shards(const char* step, ReplicaContext& replica, Model& model, const StepSettings& settings,
                   int64_t first_batch, const std::vector<Batch>& shards, const Take& take) {
  with_step_errors(step, replica, shards.front(), [&] {
    const auto cast = replica.autocast(settings.autocast);
    PipelineInputs inputs{.batches = {}, .first_number = first_batch};
    for (const auto& shard : shards) inputs.batches.push_back(data_of(shard));
    model->stream(inputs, take);
  });
}

template <typename Model, typename Batch>
void test_stream(ReplicaContext& replica, Model& model, StepState<Model, Batch>& state,
                 const StepSettings& settings, const int64_t& first_batch, const std::vector<Batch>& shards) {
  stream_shards(
      "an evaluation of several batches", replica, model, settings, first_batch, shards,
      [&](size_t batch, const torch::Tensor& outputs) {
        const auto& target = shards[batch].target;
        state.meters.update(with_whole_losses(replica, {state.loss(outputs, target), outputs, target}));
      });
}

template <typename Model, typename Batch>
std::vector<torch::Tensor> predict_stream(ReplicaContext& replica, Model& model, const StepSettings& settings,
                                          const int64_t& first_batch, const std::vector<Batch>& shards) {
  std::vector<torch::Tensor> all;
  stream_shards("a prediction of several batches", replica, model, settings, first_batch, shards,
                [&](size_t, const torch::Tensor& outputs) { all.push_back(outputs); });
  return all;
}

}  // namespace detail
}  // namespace lockstep
