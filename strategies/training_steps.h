#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/strategies/core/strategy.h"
#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"

namespace lockstep {

/// Makes the numbered steps of a training or an evaluation. The same program works with every strategy, even
/// if other processes compute the steps.
///
/// Step n takes batch n of the dataset, epoch after epoch, each with its own order if the dataset is
/// shuffled. The strategy and everything that the function uses must outlive this object. Not thread-safe.
///
/// Example:
///
///     TrainingSteps train(*strategy, "train", dataset, {.global_batch_size = 1024, .shuffle_seed = 1},
///                         [&](const StepSlot&, PerReplica<Example>& batch) {
///                           return strategy->reduce(ReduceOp::kSum,
///                                                   strategy->run(train_step, model, optimizer, batch));
///                         });
///     if (strategy->serve()) return 0;  // a worker of parameter servers, whose job has ended
///     train.run(0, 2000, [](int64_t step, const std::vector<ClosureValues>& losses) { ... });
///     strategy->end();
template <typename Batch>
class TrainingSteps {
 public:
  using OnStep = ParameterServerStrategy::OnStep;

  /// Define the same steps in the same order in all processes, before they serve. `fn(const StepSlot&,
  /// PerReplica<Batch>&)` is as for ParameterServerStrategy::define_step(). Throws as
  /// Strategy::distribute_dataset(), and InvalidArgument for a dataset without batches.
  template <IndexedDataset D, typename Fn>
  TrainingSteps(Strategy& strategy, std::string name, D dataset, const DistributeOptions& options, Fn fn,
                StepOptions<Batch> step_options = {})
      : name_(std::move(name)), served_(dynamic_cast<ParameterServerStrategy*>(&strategy)) {
    if (served_ != nullptr) {
      const auto batches = served_->step_batches(std::move(dataset), options);
      steps_per_epoch_ = batches.steps_per_epoch();
      served_->define_step(name_, batches, std::move(fn), std::move(step_options));
      return;
    }
    const auto batches = strategy.distribute_dataset(std::move(dataset), options);
    steps_per_epoch_ = batches.size();
    check_has_batches(steps_per_epoch_);
    batches_.emplace(batches.repeat());
    step_ = [fn = std::move(fn)](const StepSlot& step, PerReplica<Batch>& batch) mutable {
      return closure_results([&] { return fn(step, batch); });
    };
  }
  TrainingSteps(const TrainingSteps&) = delete;
  TrainingSteps& operator=(const TrainingSteps&) = delete;

  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// Returns how long run() has waited for batches; 0 if other processes make the steps.
  double data_wait_seconds() const { return data_wait_seconds_; }

  /// Makes steps `begin` to `end` - 1, and calls `on_step` for each in order, in the calling thread, with the
  /// function's results in each of the step's slots. There is one slot, except for parameter servers with a
  /// staleness of 0. Blocks until all steps are made. If workers step together, each of them must call this.
  /// Throws as ParameterServerStrategy::run_steps(), and rethrows errors of the function, the dataset and
  /// `on_step`.
  void run(int64_t begin, int64_t end, const OnStep& on_step) {
    if (served_ != nullptr) return served_->run_steps(name_, begin, end, on_step);
    check_steps(begin, end);
    for (int64_t step = begin; step < end; ++step) on_step(step, {step_({.step = step}, batch_of(step))});
  }

 private:
  PerReplica<Batch>& batch_of(int64_t step) {
    const auto begin = std::chrono::steady_clock::now();
    if (next_ && last_step_ == step - 1) {
      ++*next_;
    } else {
      next_.reset();
      batches_->restore({.epoch = 0, .step = step});
      next_.emplace(batches_->begin());
    }
    last_step_ = step;
    auto& batch = **next_;
    data_wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return batch;
  }

  const std::string name_;
  ParameterServerStrategy* const served_;  // null if this process makes the steps
  int64_t steps_per_epoch_ = 0;
  std::optional<DistributedDataset<Batch>> batches_;  // endless
  std::optional<typename DistributedDataset<Batch>::Iterator> next_;
  int64_t last_step_ = -1;
  double data_wait_seconds_ = 0;
  std::function<ClosureValues(const StepSlot&, PerReplica<Batch>&)> step_;
};

template <typename D, typename Fn>
TrainingSteps(Strategy&, std::string, D, const DistributeOptions&, Fn) -> TrainingSteps<BatchOf<D>>;
template <typename D, typename Fn, typename Batch>
TrainingSteps(Strategy&, std::string, D, const DistributeOptions&, Fn, StepOptions<Batch>)
    -> TrainingSteps<Batch>;

}  // namespace lockstep
