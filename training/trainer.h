#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/errors.h"
#include "lockstep/strategies/cuda_graph.h"
#include "lockstep/strategies/strategy.h"
#include "lockstep/training/average_buffers.h"
#include "lockstep/training/fit_loop.h"
#include "lockstep/training/tensor_pairs.h"
#include "lockstep/training/trainer_step.h"

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

template <typename Source>
struct ModelOf;
template <typename Model>
struct ModelOf<Mirrored<Model>> {
  using Type = Model;
};
template <ModuleLike Model>
struct ModelOf<Model> {
  using Type = Model;
};
template <typename Factory>
requires std::invocable<const Factory&, ReplicaContext&>
struct ModelOf<Factory> {
  using Type = std::invoke_result_t<const Factory&, ReplicaContext&>;
};

template <typename Source>
auto mirrored_model(Strategy& strategy, Source source) {
  if constexpr (std::invocable<const Source&, ReplicaContext&>) {
    return strategy.scope(source);
  } else if constexpr (ModuleLike<Source>) {
    return strategy.mirror(source);
  } else {
    return source;
  }
}

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

/// Trains, evaluates and uses a model on any strategy, for those who do not want to write the loop:
///
///     Trainer trainer(strategy, [](ReplicaContext&) { return SimpleCnn(); },
///                     [](auto parameters) { return FusedAdam(parameters, 1e-3); },
///                     cross_entropy, {{"accuracy", CategoricalAccuracy()}});
///     trainer.fit(batches, {.epochs = 5, .validation = test_batches});
///
/// fit() does what the loop by hand does, bit for bit: each global batch is cut into shards, losses are
/// averaged over its true number of examples, gradients summed, one step made, the same on every replica.
/// Used by one thread at a time, and by all workers alike: its calls are collectives. The strategy outlives
/// it.
template <typename Model, typename Batch = Example>
class Trainer {
 public:
  using Optimizer = std::unique_ptr<torch::optim::Optimizer>;
  using Batches = DistributedDataset<Batch>;

  /// `model` is a Mirrored module, a module to be mirrored (Strategy::mirror), or a factory for
  /// Strategy::scope. `make_optimizer` gives an optimizer, by value or pointer, of the parameters that it is
  /// handed, or of the `Model&` where it takes that. `loss` gives a loss for each example. Throws what
  /// scope() and mirror() throw, and InvalidArgument for metrics of the same name.
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

  /// Trains on `batches`. Blocks until all epochs are done or a callback has stopped it. Leaves the model
  /// training. Throws what the steps, the dataset and the callbacks throw, and InvalidArgument for options
  /// out of range and for a dataset without batches.
  History fit(Batches& batches, const FitOptions<Batch>& options = {}) {
    detail::check_fit_options({.epochs = options.epochs,
                               .steps_per_epoch = options.steps_per_epoch,
                               .clip_norm = options.clip_norm,
                               .micro_batches = options.micro_batches,
                               .epochs_done = options.epochs_done,
                               .steps_done = options.steps_done,
                               .has_own_step = static_cast<bool>(options_.train_step),
                               .is_endless = batches.is_endless()});
    Loop loop(*this, batches, options);
    return loop.run(options.epochs_done + 1, options.callbacks);
  }
  History fit(Batches&& batches, const FitOptions<Batch>& options = {}) { return fit(batches, options); }
  /// The same for a dataset with size() and get_batch(), such as LibTorch's, distributed by
  /// `options.batches`.
  template <IndexedDataset D>
  requires std::same_as<BatchOf<D>, Batch> History fit(D dataset, const FitOptions<Batch>& options = {}) {
    return fit(strategy_.distribute_dataset(std::move(dataset), options.batches), options);
  }
  /// The same for examples that are the rows of `x`, with their targets in `y`. Throws InvalidArgument where
  /// the two have different numbers of rows.
  History fit(const torch::Tensor& x, const torch::Tensor& y,
              const FitOptions<Batch>& options = {}) requires std::same_as<Batch, Example> {
    return fit(detail::TensorPairs(x, y), options);
  }

  /// Loss and metrics over every example of `batches`, each counted once, as one device would have them;
  /// BatchNorm uses the mean of the replicas' statistics, of all workers, which all of them then have. Leaves
  /// the model training. Throws what the steps and the dataset throw.
  Evaluation evaluate(Batches& batches) {
    return evaluate(batches, [](int64_t, int64_t) { return true; });
  }
  Evaluation evaluate(Batches&& batches) { return evaluate(batches); }
  /// Of a dataset that is not distributed yet.
  template <IndexedDataset D>
  requires std::same_as<BatchOf<D>, Batch> Evaluation evaluate(D dataset, const DistributeOptions& options = {
                                                                              .global_batch_size = 32}) {
    return evaluate(strategy_.distribute_dataset(std::move(dataset), options));
  }
  /// Of the rows of `x` and their targets.
  Evaluation evaluate(const torch::Tensor& x, const torch::Tensor& y,
                      const DistributeOptions& options = {
                          .global_batch_size = 32}) requires std::same_as<Batch, Example> {
    return evaluate(detail::TensorPairs(x, y), options);
  }

  /// The model's outputs for every example of `batches`, in the dataset's order (an unshuffled one), on the
  /// CPU: [examples, ...]. `batches` may be without targets, or tensors. Leaves the model training. Throws as
  /// evaluate(), and InvalidArgument for no batches.
  template <typename B>
  torch::Tensor predict(DistributedDataset<B>& batches) {
    const Evaluating evaluating(strategy_, model_);
    std::vector<torch::Tensor> outputs;
    for (const auto& batch : batches) {
      outputs.push_back(
          strategy_.gather(strategy_.run(detail::predict_step<Model, B>, model_, settings(), batch)).cpu());
    }
    if (outputs.empty()) throw InvalidArgument("[predict] expected at least one batch, but got none");
    return torch::cat(outputs);
  }
  template <typename B>
  torch::Tensor predict(DistributedDataset<B>&& batches) {
    return predict(batches);
  }
  /// Of the rows of `x`.
  torch::Tensor predict(const torch::Tensor& x,
                        const DistributeOptions& options = {.global_batch_size = 32}) {
    return predict(strategy_.distribute_dataset(detail::TensorRows(x), options));
  }

 private:
  using State = detail::StepState<Model, Batch>;
  class Loop;

  /// Evaluates while it lives, and trains again whatever ended it.
  class Evaluating {
   public:
    Evaluating(Strategy& strategy, Mirrored<Model>& model) : model_(model) {
      average_buffers(strategy, module_pointers(model.local_values()));
      model_.train(false);
    }
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
      // In this order: a generic lambda takes both.
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
      return State{compute, options_.train_step, StepMeters{.metrics = metrics}};
    });
  }

  detail::StepSettings settings() const {
    return {.autocast = options_.autocast, .has_scaler = needs_scaler()};
  }

  static void reset(Mirrored<State>& states) {
    for (auto& state : states.local_values()) state.meters.reset();
  }

  /// Over this process's replicas, or with `all_workers` over theirs as well.
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

  /// `on_step(steps, examples)` after every step; ends early where it returns false.
  Evaluation evaluate(Batches& batches, const std::function<bool(int64_t, int64_t)>& on_step) {
    const Evaluating evaluating(strategy_, model_);
    reset(test_state_);
    int64_t steps = 0, examples = 0;
    for (const auto& batch : batches) {
      strategy_.run(test_step_, model_, test_state_, settings(), batch);
      examples += batch.batch_sizes()->global;
      if (!on_step(++steps, examples)) break;
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

/// fit()'s loop with its types.
template <typename Model, typename Batch>
class Trainer<Model, Batch>::Loop : public FitLoop {
 public:
  Loop(Trainer& trainer, Batches& batches, const FitOptions<Batch>& options)
      : FitLoop(objects_of(trainer)), trainer_(trainer), batches_(batches), validation_(options.validation) {
    epochs = options.epochs_done + options.epochs;
    global_step = options.steps_done;
    goes_on_ = options.steps_per_epoch.has_value();
    steps_per_epoch = goes_on_ ? options.steps_per_epoch : batches.known_size();
    if (validation_) test_steps = validation_->known_size();
    settings_ = trainer.settings();
    settings_.clip_norm = options.clip_norm;
    settings_.micro_batches = options.micro_batches;
    const bool measures = std::any_of(options.callbacks.begin(), options.callbacks.end(),
                                      [](const auto& callback) { return callback->needs_gradient_norm(); });
    if (measures && !settings_.clip_norm) settings_.clip_norm = std::numeric_limits<double>::infinity();
    trainer.model_.train();
  }

  Logs local_logs() const override { return trainer_.results_of(trainer_.train_state_, false).logs; }
  std::vector<FiniteCount> finite_counts(bool all_workers) const override {
    std::vector<FiniteSteps> steps;
    for (const auto& state : trainer_.train_state_.local_values()) steps.push_back(state.meters.finite);
    return count_finite(PerReplica(std::move(steps), trainer_.train_state_.devices()), trainer_.strategy_,
                        all_workers);
  }
  std::pair<double, double> local_loss() const override {
    std::pair<double, double> loss;
    for (const auto& state : trainer_.train_state_.local_values()) {
      loss.first += state.meters.loss.total();
      loss.second += state.meters.loss.count();
    }
    return loss;
  }
  DatasetPosition position() const override {
    const auto position = batches_.position();
    // Behind an epoch's last batch is the next epoch's first.
    const auto size = batches_.known_size();
    return size && position.step >= *size ? DatasetPosition{position.epoch + 1, 0} : position;
  }

 protected:
  void begin_epoch() override {
    Trainer::reset(trainer_.train_state_);
    if (!goes_on_) iterator_.reset();
  }

  bool next_batch() override {
    if (iterator_) {
      ++*iterator_;
    } else {
      iterator_.emplace(batches_.begin());
    }
    if (*iterator_ != batches_.end()) return true;
    iterator_.reset();
    if (!goes_on_) return false;
    iterator_.emplace(batches_.begin());
    return *iterator_ != batches_.end();
  }

  int64_t train_step() override {
    auto& batch = **iterator_;
    trainer_.strategy_.run(trainer_.fit_step_, trainer_.model_, trainer_.optimizer_, trainer_.scaler_,
                           trainer_.train_state_, settings_, batch);
    return batch.batch_sizes()->global;
  }

  Evaluation training_results() override { return trainer_.results_of(trainer_.train_state_, true); }
  std::optional<double> gradient_norm() override {
    if (!settings_.clip_norm || trainer_.options_.train_step) return std::nullopt;
    // The same on every replica.
    const Mean& norm = trainer_.train_state_.primary().meters.gradient_norm;
    return norm.value(norm.state());
  }

  bool has_validation() const override { return validation_.has_value(); }
  Evaluation validate(const std::function<bool()>& on_step) override {
    return trainer_.evaluate(*validation_, [&](int64_t steps, int64_t examples_done) {
      test_step = steps;
      test_examples = examples_done;
      return on_step();
    });
  }

 private:
  static Objects objects_of(Trainer& trainer) {
    Objects objects{trainer.strategy_, module_pointers(trainer.model_.local_values()), {}, {}};
    for (auto& optimizer : trainer.optimizer_.local_values()) objects.optimizers.push_back(optimizer.get());
    for (auto& scaler : trainer.scaler_.local_values()) objects.scalers.push_back(&scaler);
    return objects;
  }

  Trainer& trainer_;
  Batches& batches_;
  std::optional<Batches> validation_;
  std::optional<typename Batches::Iterator> iterator_;
  detail::StepSettings settings_;
  bool goes_on_ = false;  // steps_per_epoch is given: an epoch begins where the one before it stopped
};

}  // namespace lockstep
