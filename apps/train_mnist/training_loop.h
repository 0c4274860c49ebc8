#pragma once

// Internal: for the source of each model.

#include <torch/utils.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/apps/train_mnist/finite_steps.h"
#include "lockstep/apps/train_mnist/numbers_error.h"
#include "lockstep/apps/train_mnist/optimizer_choice.h"
#include "lockstep/apps/train_mnist/precision_choice.h"
#include "lockstep/apps/train_mnist/training.h"
#include "lockstep/runtime/grad_scaler.h"
#include "lockstep/strategies/cuda_graph.h"
#include "lockstep/strategies/losses.h"
#include "lockstep/training/learning_rate.h"
#include "lockstep/training/metrics.h"

namespace lockstep::apps {

/// Runs once per replica, on that replica's thread and device.
template <typename Model>
void train_step(ReplicaContext& replica, Model& model, Optimizer& optimizer, GradScaler& scaler,
                Mean& mean_loss, CategoricalAccuracy& accuracy, FiniteSteps& finite,
                const torch::ScalarType& dtype, const Example& batch) {
  optimizer->zero_grad();
  torch::Tensor logits, losses;
  {
    const auto cast = replica.autocast(dtype);
    logits = model->forward(batch.data);
    losses = torch::cross_entropy_loss(logits, batch.target, {}, at::Reduction::None);
  }
  scaler.scale(compute_average_loss(replica, losses)).backward();
  replica.apply_gradients(*optimizer, {.scaler = &scaler});
  scaler.update();
  mean_loss.update(losses);
  accuracy.update(logits, batch.target);
  finite.update(losses);
}

template <typename Model>
void test_step(ReplicaContext& replica, Model& model, CategoricalAccuracy& accuracy,
               const torch::ScalarType& dtype, const Example& batch) {
  const auto cast = replica.autocast(dtype);
  accuracy.update(model->forward(batch.data), batch.target);
}

template <typename Model>
int64_t count_parameters(const Model& model) {
  int64_t count = 0;
  for (const auto& parameter : model->parameters()) count += parameter.numel();
  return count;
}

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// One model's training: an epoch is so many steps of an endless stream of batches.
template <typename Model>
class Training {
 public:
  using Batches = DistributedDataset<Example>;

  Training(const TrainingRun& run, const std::function<Model(ReplicaContext&)>& make_model)
      : run_(run),
        model_(run.strategy.scope(make_model)),
        optimizer_(run.strategy.scope([&](ReplicaContext& replica) {
          return make_optimizer(run.options, run.plan.learning_rate, model_[replica]->parameters());
        })),
        scaler_(run.strategy.scope([&](ReplicaContext& replica) {
          return GradScaler(replica.device(), {.enabled = needs_loss_scaling(run.options.precision)});
        })),
        loss_(run.strategy.scope([](ReplicaContext&) { return Mean(); })),
        accuracy_(run.strategy.scope([](ReplicaContext&) { return CategoricalAccuracy(); })),
        finite_(run.strategy.scope([](ReplicaContext&) { return FiniteSteps(); })),
        train_step_(train_step<Model>, {.enabled = run.options.cuda_graph}),
        test_step_(test_step<Model>, {.enabled = run.options.cuda_graph}),
        train_batches_(
            distribute(run.strategy, run.data.train,
                       {.global_batch_size = run.plan.global_batch_size, .shuffle_seed = run.options.seed})
                .repeat()),
        test_batches_(
            distribute(run.strategy, run.data.test, {.global_batch_size = run.plan.global_batch_size})) {}

  bool run() {
    run_.on_start(count_parameters(model_.primary()));
    auto batch = train_batches_.begin();
    EpochReport report{.epochs = run_.options.epochs};
    for (report.epoch = 1; report.epoch <= report.epochs; ++report.epoch) {
      if (!train_epoch(batch, report) || !test_epoch(report)) return false;
      run_.on_epoch(report);
    }
    return true;
  }

 private:
  bool train_epoch(typename Batches::Iterator& batch, EpochReport& report) {
    model_.train();
    reset(loss_);
    reset(accuracy_);
    for (auto& finite : finite_.local_values()) finite.reset();
    const Stopwatch watch;
    Progress progress{.label = label_of(report), .steps = run_.plan.steps_per_epoch};
    while (progress.step < progress.steps) {
      // Only now: the last step of all need not wait for a batch after it.
      if (progress.step > 0 || report.epoch > 1) ++batch;
      set_learning_rate((report.epoch - 1) * progress.steps + progress.step);
      run_.strategy.run(train_step_, model_, optimizer_, scaler_, loss_, accuracy_, finite_,
                        autocast_dtype(run_.options.precision), *batch);
      progress.images += batch->batch_sizes()->global;
      ++progress.step;
      if (run_.display.is_due()) {
        check_finite(report.epoch);
        progress.loss = result(loss_);
        progress.accuracy = result(accuracy_);
        progress.seconds = watch.seconds();
        run_.display.show(progress);
      }
      if (run_.interruption.signal() != 0) return false;
    }
    check_finite(report.epoch);  // reads every device's result: the steps are done after it
    report.images_per_second = static_cast<double>(progress.images) / watch.seconds();
    report.loss = result(loss_);
    report.accuracy = result(accuracy_);
    return true;
  }

  static std::string label_of(const EpochReport& report) {
    return "epoch " + std::to_string(report.epoch) + "/" + std::to_string(report.epochs);
  }

  bool test_epoch(EpochReport& report) {
    const torch::NoGradGuard no_grad;
    model_.eval();
    reset(accuracy_);
    const Stopwatch watch;
    Progress progress{.label = label_of(report) + " test", .steps = test_batches_.size()};
    for (const auto& batch : test_batches_) {
      run_.strategy.run(test_step_, model_, accuracy_, autocast_dtype(run_.options.precision), batch);
      progress.images += batch.batch_sizes()->global;
      ++progress.step;
      if (run_.display.is_due()) {
        progress.seconds = watch.seconds();
        run_.display.show(progress);
      }
      if (run_.interruption.signal() != 0) return false;
    }
    report.test_accuracy = result(accuracy_);
    return true;
  }

  /// `step`: from 0, over all epochs.
  void set_learning_rate(int64_t step) {
    if (run_.options.schedule == ScheduleKind::kConstant) return;
    const double learning_rate = run_.plan.learning_rate * cosine_decay(step, run_.plan.num_steps);
    for (auto& optimizer : optimizer_.local_values()) lockstep::set_learning_rate(*optimizer, learning_rate);
  }

  void check_finite(int64_t epoch) {
    const auto& replicas = finite_.local_values();
    size_t first = 0;
    for (size_t replica = 1; replica < replicas.size(); ++replica) {
      if (replicas[replica].count() < replicas[first].count()) first = replica;
    }
    const int64_t good = replicas[first].count();
    if (good == replicas[first].steps()) return;
    throw loss_not_finite(epoch, good + 1, static_cast<int64_t>(first), (*finite_.devices())[first].str(),
                          run_.options, run_.plan);
  }

  const TrainingRun& run_;
  Mirrored<Model> model_;
  Mirrored<Optimizer> optimizer_;
  Mirrored<GradScaler> scaler_;
  Mirrored<Mean> loss_;
  Mirrored<CategoricalAccuracy> accuracy_;
  Mirrored<FiniteSteps> finite_;
  CudaGraph<decltype(&train_step<Model>)> train_step_;
  CudaGraph<decltype(&test_step<Model>)> test_step_;
  Batches train_batches_;
  Batches test_batches_;
};

}  // namespace lockstep::apps
