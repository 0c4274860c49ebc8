#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/core/cuda_graph.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/trainer/fit_loop.h"
#include "lockstep/training/trainer/tensor_pairs.h"
#include "lockstep/training/trainer/trainer_model.h"
#include "lockstep/training/trainer/trainer_options.h"
#include "lockstep/training/trainer/trainer_step.h"

namespace lockstep {

/// Trains, evaluates and applies a model on any strategy, without a loop of your own.
///
/// fit() does exactly what a loop written by hand does, bit for bit: it cuts each global batch into shards,
/// averages the losses over the true number of examples, sums the gradients, and makes one step, the same on
/// every replica. Not thread-safe: call it from one thread at a time. All calls are collectives that every
/// worker must make. The strategy must outlive the Trainer.
///
/// Example:
///
///     Trainer trainer(strategy, [](ReplicaContext&) { return SimpleCnn(); },
///                     [](auto parameters) { return FusedAdam(parameters, 1e-3); },
///                     cross_entropy, {{"accuracy", CategoricalAccuracy()}});
///     trainer.fit(batches, {.epochs = 5, .validation = test_batches});
template <typename Model, typename Batch = Example>
class Trainer {
 public:
  using Optimizer = std::unique_ptr<torch::optim::Optimizer>;
  using Batches = DistributedDataset<Batch>;

  /// Makes the model and the optimizer of every replica. `model` is a Mirrored module, a module to mirror
  /// (Strategy::mirror), or a factory for Strategy::scope. `make_optimizer` takes the parameters, or the
  /// `Model&`, and returns an optimizer by value or pointer. `loss` returns a loss for each example.
  ///
  /// Throws the errors of scope() and mirror(). Throws InvalidArgument if two metrics have the same name, if
  /// one has a name that the logs use themselves (such as loss), if a CUDA graph cannot capture one, and if
  /// batches of this type need TrainerOptions::compute.
  template <typename Source, typename MakeOptimizer>
  Trainer(Strategy& strategy, Source model, const MakeOptimizer& make_optimizer, LossFunction loss,
          MetricList metrics = {}, TrainerOptions<Model, Batch> options = {})
      : strategy_(strategy),
        options_(std::move(options)),
        model_(detail::mirrored_model(strategy, std::move(model))),
        optimizer_(strategy.scope(
            [&](ReplicaContext& replica) { return optimizer_from(make_optimizer, model_[replica]); })),
        scaler_(strategy.scope([&](ReplicaContext& replica) {
          return GradScaler(replica.device(), {.enabled = needs_scaler()});
        })),
        train_state_(make_state(loss, metrics)),
        test_state_(make_state(loss, joined(metrics, options_.evaluation_metrics))),
        fit_step_(detail::fit_step<Model, Batch>, {.enabled = options_.cuda_graph}),
        test_step_(detail::test_step<Model, Batch>, {.enabled = options_.cuda_graph}) {
    detail::check_metrics(joined(metrics, options_.evaluation_metrics), options_.cuda_graph);
  }

  Mirrored<Model>& model() { return model_; }
  Mirrored<Optimizer>& optimizer() { return optimizer_; }
  Mirrored<GradScaler>& scaler() { return scaler_; }
  Strategy& strategy() { return strategy_; }

  /// Trains on `batches`. Blocks until all epochs are done or a callback has stopped the fit. Leaves the
  /// model in training mode. Throws the errors of the steps (StepError if LibTorch refuses an operation), the
  /// dataset and the callbacks, and InvalidArgument if an option is out of range, the dataset has no batches,
  /// or a callback monitors a value that the logs cannot have.
  History fit(Batches& batches, const FitOptions<Batch>& options = {}) {
    detail::check_fit_options({.epochs = options.epochs,
                               .steps_per_epoch = options.steps_per_epoch,
                               .clip_norm = options.clip_norm,
                               .micro_batches = options.micro_batches,
                               .epochs_done = options.epochs_done,
                               .steps_done = options.steps_done,
                               .has_own_step = static_cast<bool>(options_.train_step),
                               .has_own_backward = static_cast<bool>(options_.forward_backward),
                               .is_endless = batches.is_endless()});
    Loop loop(*this, batches, options);
    return loop.run(options.epochs_done + 1, options.callbacks);
  }
  History fit(Batches&& batches, const FitOptions<Batch>& options = {}) { return fit(batches, options); }
  /// Trains on a dataset with size() and get_batch(), such as LibTorch's, distributed as `options.batches`
  /// says; 32 examples a step if that has no batch size.
  template <IndexedDataset D>
  requires std::same_as<BatchOf<D>, Batch> History fit(D dataset, const FitOptions<Batch>& options = {}) {
    return fit(strategy_.distribute_dataset(std::move(dataset), detail::training_batches(options.batches)),
               options);
  }
  /// Trains on the rows of `x` as examples, with their targets in `y`. Throws InvalidArgument if `x` and `y`
  /// have different numbers of rows.
  History fit(const torch::Tensor& x, const torch::Tensor& y,
              const FitOptions<Batch>& options = {}) requires std::same_as<Batch, Example> {
    return fit(detail::TensorPairs(x, y), options);
  }

  /// Returns loss and metrics over every example of `batches`, each counted once, as a single device would
  /// compute them. BatchNorm uses the mean of all replicas' statistics; see Mirrored::eval(). Leaves the
  /// model in training mode. Throws the errors of the steps and the dataset, and InvalidArgument if there are
  /// no batches.
  Evaluation evaluate(Batches& batches) {
    return evaluate(batches, [](int64_t, int64_t) { return true; });
  }
  Evaluation evaluate(Batches&& batches) { return evaluate(batches); }
  /// Evaluates on a dataset that is not distributed yet.
  template <IndexedDataset D>
  requires std::same_as<BatchOf<D>, Batch> Evaluation evaluate(D dataset, const DistributeOptions& options = {
                                                                              .global_batch_size = 32}) {
    return evaluate(strategy_.distribute_dataset(std::move(dataset), options));
  }
  /// Evaluates on the rows of `x` and their targets in `y`.
  Evaluation evaluate(const torch::Tensor& x, const torch::Tensor& y,
                      const DistributeOptions& options = {
                          .global_batch_size = 32}) requires std::same_as<Batch, Example> {
    return evaluate(detail::TensorPairs(x, y), options);
  }

  /// Returns the model's outputs for every example of `batches`, on the CPU: [examples, ...]. They are in the
  /// dataset's order, so it should not be shuffled. `batches` may lack targets or be plain tensors. Leaves
  /// the model in training mode. Throws as evaluate() does.
  template <typename B>
  torch::Tensor predict(DistributedDataset<B>& batches) {
    const Evaluating evaluating(model_);
    std::vector<torch::Tensor> outputs;
    if constexpr (detail::StreamsBatches<Model>) {
      for_groups(batches, [&](const std::vector<PerReplica<B>>& group) {
        const auto first = static_cast<int64_t>(outputs.size());
        const auto results =
            strategy_.run(detail::predict_stream<Model, B>, model_, settings(), first, shards_of(group));
        for (size_t i = 0; i < group.size(); ++i)
          outputs.push_back(strategy_.gather(results.map([i](const auto& all) { return all[i]; })).cpu());
        return true;
      });
    } else {
      for (const auto& batch : batches) {
        outputs.push_back(
            strategy_.gather(strategy_.run(detail::predict_step<Model, B>, model_, settings(), batch)).cpu());
      }
    }
    if (outputs.empty()) throw InvalidArgument("[predict] expected at least one batch, but got none");
    return torch::cat(outputs);
  }
  template <typename B>
  torch::Tensor predict(DistributedDataset<B>&& batches) {
    return predict(batches);
  }
  /// Predicts for the rows of `x`.
  torch::Tensor predict(const torch::Tensor& x,
                        const DistributeOptions& options = {.global_batch_size = 32}) {
    return predict(strategy_.distribute_dataset(detail::TensorRows(x), options));
  }
  /// Predicts for a dataset that is not distributed yet.
  template <IndexedDataset D>
  torch::Tensor predict(D dataset, const DistributeOptions& options = {.global_batch_size = 32}) {
    return predict(strategy_.distribute_dataset(std::move(dataset), options));
  }

 private:
  using State = detail::StepState<Model, Batch>;
  class Loop;

  /// Puts the model into evaluation mode during its lifetime, and back into training mode even after an
  /// exception.
  class Evaluating {
   public:
    explicit Evaluating(Mirrored<Model>& model) : model_(model) { model_.eval(); }
    ~Evaluating() { model_.train(); }
    Evaluating(const Evaluating&) = delete;
    Evaluating& operator=(const Evaluating&) = delete;

   private:
    Mirrored<Model>& model_;
    torch::NoGradGuard no_grad_;
  };

  bool needs_scaler() const { return options_.autocast == torch::kHalf && !options_.train_step; }

  template <typename MakeOptimizer>
  static Optimizer optimizer_from(const MakeOptimizer& make, Model& model) {
    const auto call = [&] {
      // A generic lambda takes both: the parameters come first.
      if constexpr (std::invocable<const MakeOptimizer&, std::vector<torch::Tensor>>) {
        return make(model->parameters());
      } else {
        return make(model);
      }
    };
    using Made = decltype(call());
    if constexpr (std::convertible_to<Made, Optimizer>) {
      return call();
    } else {
      return std::make_unique<Made>(call());
    }
  }

  static MetricList joined(MetricList first, const MetricList& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }

  Mirrored<State> make_state(const LossFunction& loss, const MetricList& metrics) {
    auto compute = options_.compute;
    const bool has_default_compute = !compute;
    if (!compute) {
      if constexpr (detail::HasDataAndTarget<Batch>) {
        compute = [loss](ReplicaContext&, Model& model, const Batch& batch) {
          const auto outputs = detail::forward(model, batch);
          return StepOutputs{loss(outputs, batch.target), outputs, batch.target};
        };
      } else if (!options_.train_step) {
        throw InvalidArgument("[Trainer] expected TrainerOptions::compute for batches of this type");
      }
    }
    return strategy_.scope([&](ReplicaContext&) {
      return State{.compute = compute,
                   .train_step = options_.train_step,
                   .forward_backward = options_.forward_backward,
                   .loss = has_default_compute ? loss : LossFunction(),
                   .meters = StepMeters{.metrics = metrics}};
    });
  }

  detail::StepSettings settings() const {
    return {.autocast = options_.autocast, .has_scaler = needs_scaler()};
  }

  static void reset(Mirrored<State>& states) {
    for (auto& state : states.local_values()) state.meters.reset();
  }

  /// Returns the results of this process's replicas, or with `all_workers` of all replicas.
  Evaluation results_of(const Mirrored<State>& states, bool all_workers) {
    Strategy* strategy = all_workers ? &strategy_ : nullptr;
    std::vector<Mean> losses;
    std::vector<const MetricList*> lists;
    for (const auto& state : states.local_values()) {
      losses.push_back(state.meters.loss);
      lists.push_back(&state.meters.metrics);
    }
    const PerReplica loss(std::move(losses), states.devices());
    Evaluation results;
    results.logs.set("loss", all_workers ? result(strategy_, loss) : result(loss));
    for (const auto& [name, value] : metric_results(lists, states.devices(), strategy)) {
      if (value.dim() == 0) {
        results.logs.set(name, value.template item<double>());
      } else {
        results.tensors.emplace_back(name, value);
      }
    }
    return results;
  }

  /// Calls `use` with a few batches at a time, until it returns false.
  template <typename B, typename Use>
  static void for_groups(DistributedDataset<B>& batches, const Use& use) {
    std::vector<PerReplica<B>> group;
    for (const auto& batch : batches) {
      group.push_back(batch);
      if (group.size() < detail::kStreamedBatches) continue;
      if (!use(group)) return;
      group.clear();
    }
    if (!group.empty()) use(group);
  }

  /// Returns each replica's shards of the batches.
  template <typename B>
  static PerReplica<std::vector<B>> shards_of(const std::vector<PerReplica<B>>& group) {
    std::vector<std::vector<B>> shards(group.front().local_values().size());
    for (const auto& batch : group) {
      for (size_t i = 0; i < shards.size(); ++i) shards[i].push_back(batch.local_values()[i]);
    }
    return {std::move(shards), group.front().devices()};
  }

  /// Calls `on_step(steps, examples)` after every step; ends early if it returns false.
  Evaluation evaluate(Batches& batches, const std::function<bool(int64_t, int64_t)>& on_step) {
    const Evaluating evaluating(model_);
    reset(test_state_);
    int64_t steps = 0, examples = 0;
    const auto count = [&](const PerReplica<Batch>& batch) {
      examples += batch.batch_sizes()->global;
      return on_step(++steps, examples);
    };
    bool is_streamed = false;
    if constexpr (detail::StreamsBatches<Model> && detail::HasDataAndTarget<Batch>) {
      is_streamed = !options_.compute && !options_.cuda_graph;
      if (is_streamed) {
        for_groups(batches, [&](const std::vector<PerReplica<Batch>>& group) {
          strategy_.run(detail::test_stream<Model, Batch>, model_, test_state_, settings(), steps,
                        shards_of(group));
          return std::all_of(group.begin(), group.end(), count);
        });
      }
    }
    if (!is_streamed) {
      for (const auto& batch : batches) {
        strategy_.run(test_step_, model_, test_state_, settings(), batch);
        if (!count(batch)) break;
      }
    }
    if (steps == 0) throw InvalidArgument("[evaluate] expected at least one batch, but got none");
    auto results = results_of(test_state_, /*all_workers=*/true);
    results.examples = examples;
    return results;
  }

  Strategy& strategy_;
  TrainerOptions<Model, Batch> options_;
  Mirrored<Model> model_;
  Mirrored<Optimizer> optimizer_;
  Mirrored<GradScaler> scaler_;
  Mirrored<State> train_state_;
  Mirrored<State> test_state_;
  CudaGraph<decltype(&detail::fit_step<Model, Batch>)> fit_step_;
  CudaGraph<decltype(&detail::test_step<Model, Batch>)> test_step_;
};

template <typename Source, typename MakeOptimizer>
Trainer(Strategy&, Source, const MakeOptimizer&, LossFunction, MetricList = {})
    -> Trainer<typename detail::ModelOf<Source>::Type>;
template <typename Source, typename MakeOptimizer, typename Model, typename Batch>
Trainer(Strategy&, Source, const MakeOptimizer&, LossFunction, MetricList, TrainerOptions<Model, Batch>)
    -> Trainer<Model, Batch>;

}  // namespace lockstep

#include "lockstep/training/trainer/trainer_loop.h"  // the loop of fit(), which needs the complete class
