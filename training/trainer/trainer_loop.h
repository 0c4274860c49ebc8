#pragma once

// The end of trainer.h: do not include it directly.

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/training/trainer/fit_loop.h"
#include "lockstep/training/trainer/measure_statistics.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {

/// Loop of fit() with the types of model and batch.
template <typename Model, typename Batch>
class Trainer<Model, Batch>::Loop : public FitLoop {
 public:
  Loop(Trainer& trainer, Batches& batches, const FitOptions<Batch>& options)
      : FitLoop(objects_of(trainer)),
        trainer_(trainer),
        batches_(batches),
        validation_(
            options.validation.distribute(trainer.strategy_, detail::validation_batches(options.batches))) {
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
  void update_batch_norm() override {
    Batches batches = batches_;  // whose position stays
    batches.restore({position().epoch, 0});
    detail::measure_statistics(trainer_.strategy_, trainer_.model_, batches,
                               steps_per_epoch.value_or(std::numeric_limits<int64_t>::max()),
                               [this](ReplicaContext& replica, Model& model, const Batch& shard) {
                                 detail::statistics_step(replica, model, trainer_.train_state_[replica],
                                                         settings_, shard);
                               });
  }
  std::vector<std::string> log_names() const override {
    const auto& test_metrics = trainer_.test_state_.primary().meters.metrics;
    return detail::log_names(trainer_.train_state_.primary().meters.metrics,
                             validation_ ? &test_metrics : nullptr,
                             settings_.clip_norm && !trainer_.options_.train_step);
  }
  DatasetPosition position() const override {
    const auto position = batches_.position();
    // The batch after an epoch's last one is the next epoch's first.
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
    // All replicas have the same norm.
    const Mean& norm = trainer_.train_state_.primary().meters.gradient_norm;
    return norm.value(norm.state());
  }
  std::vector<StepMeters*> meters() override {
    std::vector<StepMeters*> of_replicas;
    for (auto& state : trainer_.train_state_.local_values()) of_replicas.push_back(&state.meters);
    return of_replicas;
  }
  std::optional<int64_t> dataset_steps() const override { return batches_.known_size(); }
  std::string dataset_description() const override { return batches_.describe(); }
  int64_t validation_epoch() const override { return validation_ ? validation_->position().epoch : 0; }
  void go_to(const DatasetPosition& position, int64_t validation_epoch) override {
    iterator_.reset();
    batches_.restore(position);
    if (validation_) validation_->restore({validation_epoch, 0});
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
  bool goes_on_ = false;  // with steps_per_epoch, an epoch begins where the last one stopped
};

}  // namespace lockstep
