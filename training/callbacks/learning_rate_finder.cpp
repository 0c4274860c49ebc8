#include "lockstep/training/callbacks/learning_rate_finder.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/internal/random_state.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/state/internal/replica_states.h"
#include "lockstep/training/trainer/internal/step_snapshot.h"

namespace lockstep {
namespace {

/// Returns the mean loss of a step. `local` is this worker's sum of losses and their number. A collective of
/// the workers, with one exchange for both.
double mean_over_workers(Strategy& strategy, const std::pair<double, double>& local) {
  if (strategy.num_local_replicas() == strategy.num_ranks()) return local.first / local.second;
  // reduce() takes the first rank of each replica.
  std::vector<torch::Tensor> parts;
  bool is_placed = false;
  const auto devices = std::make_shared<const Devices>(strategy.devices());
  for (const auto& device : *devices) {
    const bool has_all = !is_placed && strategy.is_first_of_replica(parts.size());
    const auto [sum, count] = has_all ? local : std::pair(0.0, 0.0);
    is_placed = is_placed || has_all;
    parts.push_back(torch::tensor({sum, count}, torch::kDouble).to(device.torch_device()));
  }
  const auto total = strategy.reduce(ReduceOp::kSum, PerReplica(std::move(parts), devices)).cpu();
  return total[0].item<double>() / total[1].item<double>();
}

}  // namespace

/// Everything that steps change, as it was when the fit began.
struct LearningRateFinder::Kept {
  explicit Kept(const FitState::Objects& all)
      : objects(all), meters(all.modules.size()), generators(replica_generators(all.strategy)) {
    for (auto& of_replica : meters) meter_pointers.push_back(&of_replica);
    snapshot.emplace(objects, meter_pointers);
    for (auto* optimizer : objects.optimizers) {
      auto& rates = learning_rates.emplace_back();
      for (const auto& group : optimizer->param_groups()) rates.push_back(group.options().get_lr());
    }
    for (const auto& generator : generators) random_states.push_back(random_state_of(generator));
  }

  void restore() {
    snapshot->restore(objects, meter_pointers);
    for (size_t i = 0; i < objects.optimizers.size(); ++i) {
      auto rate = learning_rates[i].begin();
      for (auto& group : objects.optimizers[i]->param_groups()) group.options().set_lr(*rate++);
    }
    for (size_t i = 0; i < generators.size(); ++i) set_random_state(generators[i], random_states[i]);
  }

  FitState::Objects objects;
  std::vector<StepMeters> meters;  // unused: the fit's own start over with each fit
  std::vector<StepMeters*> meter_pointers;
  std::optional<StepSnapshot> snapshot;
  std::vector<std::vector<double>> learning_rates;
  std::vector<at::Generator> generators;
  std::vector<torch::Tensor> random_states;
};

LearningRateFinder::LearningRateFinder(const LearningRateFinderOptions& options) : options_(options) {
  const auto refuse = [](const std::string& expected, double actual) {
    throw InvalidArgument(c10::str("[find_learning_rate] expected ", expected, ", but got ", actual));
  };
  if (!(options.min_learning_rate > 0)) refuse("a positive min_learning_rate", options.min_learning_rate);
  if (!(options.max_learning_rate > options.min_learning_rate) || !std::isfinite(options.max_learning_rate))
    refuse("a max_learning_rate above min_learning_rate", options.max_learning_rate);
  if (options.steps < 2) refuse("2 or more steps", static_cast<double>(options.steps));
  if (!(options.smoothing >= 0 && options.smoothing < 1))
    refuse("a smoothing of at least 0 and below 1", options.smoothing);
  if (!(options.divergence > 1)) refuse("a divergence above 1", options.divergence);
}

LearningRateFinder::~LearningRateFinder() = default;

void LearningRateFinder::on_fit_begin(FitState& state) {
  sweep_ = {};
  mean_ = lowest_ = 0;
  seen_ = {0, 0};
  kept_ = std::make_unique<Kept>(state.objects());
}

void LearningRateFinder::on_step_begin(FitState& state) {
  const double share = static_cast<double>(state.step) / static_cast<double>(options_.steps - 1);
  const double rate =
      options_.min_learning_rate * std::pow(options_.max_learning_rate / options_.min_learning_rate, share);
  state.set_learning_rate(rate);
  sweep_.learning_rates.push_back(rate);
}

void LearningRateFinder::on_step_end(FitState& state) {
  const auto now = state.local_loss();
  const double loss =
      mean_over_workers(state.strategy(), {now.first - seen_.first, now.second - seen_.second});
  seen_ = now;
  mean_ = options_.smoothing * mean_ + (1 - options_.smoothing) * loss;
  const auto count = static_cast<double>(sweep_.losses.size() + 1);
  const double smoothed = mean_ / (1 - std::pow(options_.smoothing, count));
  sweep_.losses.push_back(loss);
  sweep_.smoothed_losses.push_back(smoothed);
  lowest_ = count == 1 ? smoothed : std::min(lowest_, smoothed);
  if (std::isfinite(loss) && !(smoothed > options_.divergence * lowest_ && lowest_ > 0)) return;
  sweep_.has_diverged = true;
  state.stop("the loss has diverged");
}

void LearningRateFinder::restore_all() {
  if (kept_) kept_->restore();
  kept_.reset();
}

LearningRateSweep LearningRateFinder::sweep() const {
  LearningRateSweep sweep = sweep_;
  sweep.suggestion = steepest_learning_rate(sweep);
  return sweep;
}

}  // namespace lockstep
