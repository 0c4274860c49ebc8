#pragma once

// Internal: for the source of each model.

#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/training/finite_steps.h"
#include "lockstep/apps/train_mnist/numbers_error.h"
#include "lockstep/apps/train_mnist/optimizer_choice.h"
#include "lockstep/apps/train_mnist/precision_choice.h"
#include "lockstep/apps/train_mnist/training.h"
#include "lockstep/runtime/grad_scaler.h"
#include "lockstep/strategies/cuda_graph.h"
#include "lockstep/strategies/losses.h"
#include "lockstep/training/learning_rate.h"
#include "lockstep/training/metrics.h"

namespace lockstep {

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
        // Of this process's replicas: the others may not be due.
        check_finite(report.epoch, local_finite_steps());
        progress.loss = result(loss_);
        progress.accuracy = result(accuracy_);
        progress.seconds = watch.seconds();
        run_.display.show(progress);
      }
      if (run_.interruption.signal() != 0) return false;
    }
    check_finite(report.epoch, all_finite_steps());  // reads every device's: the steps are done after it
    report.images_per_second = static_cast<double>(progress.images) / watch.seconds();
    report.loss = result(run_.strategy, loss_);
    report.accuracy = result(run_.strategy, accuracy_);
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
    report.test_accuracy = result(run_.strategy, accuracy_);
    return true;
  }

  /// `step`: from 0, over all epochs.
  void set_learning_rate(int64_t step) {
    if (run_.options.schedule == ScheduleKind::kConstant) return;
    const double learning_rate = run_.plan.learning_rate * cosine_decay(step, run_.plan.num_steps);
    for (auto& optimizer : optimizer_.local_values()) lockstep::set_learning_rate(*optimizer, learning_rate);
  }

  struct FiniteCount {
    int64_t replica = 0;
    std::string device;
    int64_t good = 0;  ///< steps before the first whose loss was not finite
    int64_t steps = 0;
  };

  std::vector<FiniteCount> local_finite_steps() const {
    std::vector<FiniteCount> counts;
    for (const auto& finite : finite_.local_values()) {
      counts.push_back({run_.strategy.first_local_replica() + static_cast<int64_t>(counts.size()),
                        (*finite_.devices())[counts.size()].str(), finite.count(), finite.steps()});
    }
    return counts;
  }

  /// Of all replicas of all workers, which so decide alike: a collective.
  std::vector<FiniteCount> all_finite_steps() {
    const auto local = local_finite_steps();
    if (run_.strategy.num_local_replicas() == run_.strategy.num_replicas_in_sync()) return local;
    std::vector<torch::Tensor> rows;
    for (const auto& count : local) rows.push_back(torch::tensor({{count.good, count.steps}}, torch::kLong));
    const auto all = run_.strategy.gather(PerReplica(rows, finite_.devices())).cpu();
    std::vector<FiniteCount> counts;
    for (int64_t replica = 0; replica < all.size(0); ++replica) {
      const int64_t here = replica - local.front().replica;
      const bool is_here = here >= 0 && here < static_cast<int64_t>(local.size());
      counts.push_back({replica, is_here ? local[static_cast<size_t>(here)].device : "of another worker",
                        all[replica][0].template item<int64_t>(), all[replica][1].template item<int64_t>()});
    }
    return counts;
  }

  void check_finite(int64_t epoch, const std::vector<FiniteCount>& counts) const {
    const auto first = std::min_element(counts.begin(), counts.end(),
                                        [](const auto& a, const auto& b) { return a.good < b.good; });
    if (first->good == first->steps) return;
    throw loss_not_finite(epoch, first->good + 1, first->replica, first->device, run_.options, run_.plan);
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

}  // namespace lockstep
