#include "lockstep/training/fit_loop.h"

#include <chrono>

#include "lockstep/runtime/errors.h"
#include "lockstep/strategies/cluster_resolver.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void add_results(const std::string& prefix, const Evaluation& results, FitState& state) {
  for (const auto& [name, value] : results.logs) state.logs.set(prefix + name, value);
  for (const auto& [name, value] : results.tensors) state.tensors.emplace_back(prefix + name, value);
}

/// Each worker has a clock of its own; what callbacks decide by must be the same on all.
double of_first_worker(Strategy& strategy, double value) {
  return strategy.reduce(ReduceOp::kSum,
                         strategy.distribute_values_from_function([&](const ValueContext& replica) {
                           return replica.replica_id_in_sync_group == 0 ? value : 0.0;
                         }));
}

}  // namespace

FitState::FitState(Objects objects) : objects_(std::move(objects)) {
  const auto& groups = objects_.optimizers.front()->param_groups();
  const double first = groups.front().options().get_lr();
  for (const auto& group : groups) rate_shares_.push_back(first > 0 ? group.options().get_lr() / first : 1);
}

bool FitState::is_chief() const {
  const ClusterResolver* cluster = strategy().cluster_resolver();
  return cluster == nullptr || cluster->rank() == 0;
}

double FitState::learning_rate() const {
  return objects_.optimizers.front()->param_groups().front().options().get_lr();
}

void FitState::set_learning_rate(double learning_rate) const {
  for (auto* optimizer : objects_.optimizers) {
    auto& groups = optimizer->param_groups();
    for (size_t i = 0; i < groups.size(); ++i) groups[i].options().set_lr(learning_rate * rate_shares_[i]);
  }
}

History FitLoop::run(int64_t first_epoch, const Callbacks& callbacks) {
  History history;
  const int64_t steps_before = global_step;
  for (const auto& callback : callbacks) callback->on_fit_begin(*this);
  for (int64_t number = first_epoch; number <= epochs && !stop_reason(); ++number) {
    epoch = number;
    if (!train_epoch(callbacks) || !finish_epoch(callbacks)) break;
    history.epochs.push_back(logs);
  }
  history.steps = global_step - steps_before;
  const auto all_epochs = static_cast<size_t>(epochs - first_epoch + 1);
  if (stop_reason() && history.epochs.size() < all_epochs) history.stop_reason = *stop_reason();
  for (const auto& callback : callbacks) callback->on_fit_end(*this);
  return history;
}

bool FitLoop::train_epoch(const Callbacks& callbacks) {
  step = examples = 0;
  seconds = wait_seconds = 0;
  logs = {};
  tensors.clear();
  begin_epoch();
  for (const auto& callback : callbacks) callback->on_epoch_begin(*this);
  const auto begin = Clock::now();
  while (!steps_per_epoch || step < *steps_per_epoch) {
    const auto asked = Clock::now();
    const bool has_batch = next_batch();
    wait_seconds += seconds_since(asked);
    if (!has_batch) break;
    for (const auto& callback : callbacks) callback->on_step_begin(*this);
    examples += train_step();
    ++step;
    ++global_step;
    seconds = seconds_since(begin);
    for (const auto& callback : callbacks) callback->on_step_end(*this);
    if (stop_reason()) return false;
  }
  if (step == 0) throw InvalidArgument("[fit] expected a dataset with at least one batch, but got none");
  const Evaluation results = training_results();  // reads the devices: the steps are done after it
  seconds = seconds_since(begin);
  add_results("", results, *this);
  return true;
}

bool FitLoop::finish_epoch(const Callbacks& callbacks) {
  if (const auto norm = gradient_norm()) logs.set("gradient_norm", *norm);
  logs.set("learning_rate", learning_rate());
  logs.set("examples_per_second", of_first_worker(strategy(), static_cast<double>(examples) / seconds));
  logs.set("data_wait", of_first_worker(strategy(), wait_seconds / seconds));
  for (const auto& callback : callbacks) callback->on_epoch_trained(*this);
  if (has_validation()) {
    test_step = test_examples = 0;
    for (const auto& callback : callbacks) callback->on_test_begin(*this);
    const auto results = validate([&] {
      for (const auto& callback : callbacks) callback->on_test_step_end(*this);
      return !stop_reason().has_value();
    });
    if (stop_reason()) return false;
    add_results("validation_", results, *this);
  }
  for (const auto& callback : callbacks) callback->on_epoch_end(*this);
  return true;
}

}  // namespace lockstep
