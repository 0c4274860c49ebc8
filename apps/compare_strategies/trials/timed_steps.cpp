#include "lockstep/apps/compare_strategies/trials/timed_steps.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/apps/compare_strategies/trials/measured_training.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/measurement/seconds_since.h"

namespace lockstep::apps {
namespace {

using Clock = std::chrono::steady_clock;

/// Losses that the replicas of this process returned, step by step.
class StepLosses {
 public:
  explicit StepLosses(size_t num_replicas) : losses_(num_replicas) {}

  void add(const PerReplica<torch::Tensor>& losses) {
    for (size_t i = 0; i < losses_.size(); ++i) losses_[i].push_back(losses.local_values()[i]);
    devices_ = losses.devices();
  }

  /// Waits until the devices have done all steps.
  void wait() const {
    for (const auto& losses : losses_) {
      if (!losses.empty()) losses.back().item<double>();
    }
  }

  /// Returns the losses of the global batches. A collective of all workers.
  std::vector<double> sums(Strategy& strategy) const {
    std::vector<torch::Tensor> stacked;
    stacked.reserve(losses_.size());
    for (const auto& losses : losses_) stacked.push_back(torch::stack(losses).to(torch::kDouble));
    const auto sums =
        strategy.reduce(ReduceOp::kSum, PerReplica(std::move(stacked), devices_)).cpu().contiguous();
    return {sums.const_data_ptr<double>(), sums.const_data_ptr<double>() + sums.numel()};
  }

 private:
  std::vector<std::vector<torch::Tensor>> losses_;  // by replica, then by step
  std::shared_ptr<const Devices> devices_;
};

}  // namespace

MeasuredRun time_steps(const CompareOptions& options, Strategy& strategy,
                       const DistributedDataset<Example>& batches, const MeasuredStep& make_step) {
  MeasuredRun run{.replicas = strategy.num_replicas_in_sync()};
  StepLosses losses(static_cast<size_t>(strategy.num_local_replicas()));
  auto repeated = batches.repeat();
  auto batch = repeated.begin();
  double waited_before = 0;
  Clock::time_point begin;
  for (int64_t step = 0; step < options.steps; ++step) {
    if (step == options.warmup_steps) {
      losses.wait();
      waited_before = mean_seconds_waited(strategy);
      begin = Clock::now();
    }
    const auto before_batch = Clock::now();
    if (step > 0) ++batch;
    if (step >= options.warmup_steps) {
      run.data_wait_seconds += measurement::seconds_since(before_batch);
      run.examples += batch->batch_sizes()->global;
    }
    losses.add(make_step(*batch));
  }
  losses.wait();
  run.seconds = measurement::seconds_since(begin);
  run.communication_seconds = mean_seconds_waited(strategy) - waited_before;
  run.description = strategy.describe();  // with the last weights of its replicas
  run.peak_memory_bytes = measurement::peak_memory_bytes();
  run.losses = losses.sums(strategy);
  return run;
}

}  // namespace lockstep::apps
