#include "lockstep/training/trainer/fit_loop.h"

#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/trainer/internal/meter_states.h"
#include "lockstep/training/trainer/internal/step_snapshot.h"

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

/// Clocks differ between workers, but callbacks must decide by the same values on all of them.
double of_first_worker(Strategy& strategy, double value) {
  return strategy.reduce(ReduceOp::kSum,
                         strategy.distribute_values_from_function([&](const ValueContext& replica) {
                           return replica.replica_id_in_sync_group == 0 ? value : 0.0;
                         }));
}

/// Gives each callback a unique name: the second EarlyStopping is "EarlyStopping 2".
std::vector<std::pair<std::string, std::shared_ptr<Callback>>> named_callbacks(const Callbacks& callbacks) {
  std::vector<std::pair<std::string, std::shared_ptr<Callback>>> named;
  std::map<std::string, int> counts;
  for (const auto& callback : callbacks) {
    const std::string name = callback->name();
    const int count = ++counts[name];
    named.emplace_back(count == 1 ? name : name + " " + std::to_string(count), callback);
  }
  return named;
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

TrainingProgress FitState::progress() const {
  const DatasetPosition next = position();
  TrainingProgress progress{
      .epoch = epochs_done(), .step = global_step, .dataset_epoch = next.epoch, .position = next.step};
  for (const auto& [name, value] : logs) progress.metrics[name] = value;
  return progress;
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

FitLoop::FitLoop(Objects objects) : FitState(std::move(objects)) {}
FitLoop::~FitLoop() = default;

History FitLoop::run(int64_t first_epoch, const Callbacks& callbacks) {
  callbacks_ = &callbacks;
  epochs_done_ = epoch = first_epoch - 1;
  check_same_on_workers();
  for (const auto& callback : callbacks) callback->on_fit_begin(*this);
  if (resumed()) resume(callbacks);
  const int64_t steps_before = global_step;
  while (epochs_done_ < epochs && !stop_reason()) {
    epoch = epochs_done_ + 1;
    const bool is_whole = train_epoch(callbacks) && finish_epoch(callbacks);
    if (is_whole) {
      history_.epochs.push_back(logs);
      epochs_done_ = epoch;
      stage_ = Stage::kBegin;
    }
    call_save_point(callbacks);
    if (!is_whole) break;
  }
  history_.steps = global_step - steps_before;
  const auto all_epochs = static_cast<size_t>(epochs - first_epoch + 1);
  if (stop_reason() && history_.epochs.size() < all_epochs) history_.stop_reason = *stop_reason();
  for (const auto& callback : callbacks) callback->on_fit_end(*this);
  return std::move(history_);
}

void FitLoop::check_same_on_workers() const {
  // Workers that make different numbers of steps would wait for each other for ever.
  const std::string steps = steps_per_epoch ? std::to_string(*steps_per_epoch) : "as many as there are";
  strategy().check_same("fit", {"epochs: " + std::to_string(epochs), "steps per epoch: " + steps,
                                has_validation() ? "validation" : "no validation"});
}

void FitLoop::call_save_point(const Callbacks& callbacks) {
  for (const auto& callback : callbacks) callback->on_save_point(*this);
}

bool FitLoop::train_epoch(const Callbacks& callbacks) {
  if (stage_ == Stage::kBegin) {
    step = examples = 0;
    seconds = wait_seconds = 0;
    begin_epoch();
  }
  kept_.reset();
  logs = {};
  tensors.clear();
  for (const auto& callback : callbacks) callback->on_epoch_begin(*this);
  if (stop_reason()) return false;
  const auto begin = Clock::now();
  const double seconds_before = seconds;
  const bool was_trained = stage_ == Stage::kTrained;
  if (!was_trained && !run_steps(callbacks)) return false;
  if (step == 0) throw InvalidArgument("[fit] expected a dataset with at least one batch, but got none");
  stage_ = Stage::kTrained;
  log_training();  // reads the devices, which finishes the steps
  if (!was_trained) seconds = seconds_before + seconds_since(begin);
  return true;
}

void FitLoop::log_training() {
  tensors.clear();
  Evaluation results = training_results();
  // If all steps were undone there is nothing to report: 0 would be the best loss of all.
  if (meters().front()->finite.steps() == 0) {
    for (const auto& [name, value] : Logs(results.logs)) results.logs.set(name, std::nan(""));
    results.tensors.clear();
  }
  add_results("", results, *this);
  if (const auto norm = gradient_norm()) logs.set("gradient_norm", *norm);
}

void FitLoop::keep_state() {
  kept_.reset();  // first, since memory may not hold two snapshots
  kept_ = std::make_unique<StepSnapshot>(objects(), meters());
}

void FitLoop::roll_back() {
  if (!kept_) throw InvalidArgument("[roll_back] expected keep_state() in this epoch before it");
  kept_->restore(objects(), meters());
  ++num_roll_backs;
  if (stage_ == Stage::kTrained) log_training();
}

bool FitLoop::run_steps(const Callbacks& callbacks) {
  stage_ = Stage::kTraining;
  const auto begin = Clock::now();
  const double seconds_before = seconds;
  while (!steps_per_epoch || step < *steps_per_epoch) {
    const auto asked = Clock::now();
    const bool has_batch = next_batch();
    wait_seconds += seconds_since(asked);
    if (!has_batch) break;
    for (const auto& callback : callbacks) callback->on_step_begin(*this);
    examples += train_step();
    ++step;
    ++global_step;
    seconds = seconds_before + seconds_since(begin);
    for (const auto& callback : callbacks) callback->on_step_end(*this);
    if (stop_reason()) return false;
    call_save_point(callbacks);
  }
  return true;
}

bool FitLoop::finish_epoch(const Callbacks& callbacks) {
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

StateValue::Dict FitLoop::resume_state() {
  StateValue::Dict state;
  const bool is_begun = stage_ != Stage::kBegin;
  state.add("is_trained", stage_ == Stage::kTrained);
  state.add("step", is_begun ? step : 0);
  state.add("examples", is_begun ? examples : 0);
  state.add("seconds", is_begun ? seconds : 0.0);
  state.add("wait_seconds", is_begun ? wait_seconds : 0.0);
  const auto steps = dataset_steps();
  state.add("dataset_steps", steps ? StateValue(*steps) : StateValue());
  state.add("dataset", dataset_description());
  state.add("validation_epoch", validation_epoch());
  state.add("meters", is_begun ? save_meters(strategy(), meters()) : StateValue());
  StateValue::Dict states;
  for (const auto& [name, callback] : named_callbacks(*callbacks_)) {
    StateValue own = callback->state(*this);
    if (own.get_if<std::monostate>() == nullptr) states.add(name, std::move(own));
  }
  state.add("callbacks", std::move(states));
  StateValue::List epochs_before;
  for (const auto& of_epoch : history_.epochs) epochs_before.emplace_back(saved_numbers(of_epoch));
  state.add("history", std::move(epochs_before));
  return state;
}

void FitLoop::check_resumable() {
  for (auto* of_replica : meters()) check_restorable(*of_replica);
}

void FitLoop::resume(const Callbacks& callbacks) {
  const auto& [progress, value, source] = *resumed();
  const StateView saved(value, source);
  epochs_done_ = epoch = progress.epoch;
  global_step = progress.step;
  step = saved.at("step").count();
  examples = saved.at("examples").count();
  seconds = saved.at("seconds").number();
  wait_seconds = saved.at("wait_seconds").number();
  const StateView steps_then = saved.at("dataset_steps");
  const auto steps_now = dataset_steps();
  if (progress.position > 0 && steps_now && !steps_then.is_none() && steps_then.count() != *steps_now) {
    // The position in a pass is counted in batches.
    throw CheckpointError(
        source, "dataset_steps",
        "to resume within an epoch that has as many batches: " + std::to_string(steps_then.count()),
        std::to_string(*steps_now) + "; the global batch size and the data must be the same");
  }
  const auto dataset_then = saved.find("dataset");
  const std::string dataset_now = dataset_description();
  const bool are_known = dataset_then && !dataset_then->text().empty() && !dataset_now.empty();
  if (progress.position > 0 && are_known && dataset_then->text() != dataset_now) {
    throw CheckpointError(source, "dataset", "to resume within an epoch of " + dataset_then->text(),
                          dataset_now);
  }
  go_to({progress.dataset_epoch, progress.position}, saved.at("validation_epoch").count());
  const StateView of_meters = saved.at("meters");
  if (!of_meters.is_none()) {
    stage_ = saved.at("is_trained").truth() ? Stage::kTrained : Stage::kTraining;
    load_meters(strategy(), of_meters, meters());
  }
  const StateView states = saved.at("callbacks");
  for (const auto& [name, callback] : named_callbacks(callbacks)) {
    const auto state = states.find(name);
    if (state && !state->is_none()) callback->restore(*this, *state);
  }
  for (const auto& of_epoch : saved.at("history").items()) {
    auto& logs_then = history_.epochs.emplace_back();
    for (const auto& [name, number] : numbers_in(of_epoch)) logs_then.set(name, number);
  }
}

}  // namespace lockstep
