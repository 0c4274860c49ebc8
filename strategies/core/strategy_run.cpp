// Strategy::run(), what replicas ask of the strategy inside it, and the repair after a failed one.
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/internal/call_at_once.h"
#include "lockstep/runtime/devices/device_streams.h"
#include "lockstep/runtime/devices/internal/device_traits.h"
#include "lockstep/runtime/gradients/gradient_step.h"
#include "lockstep/runtime/graphs/graph_recording.h"
#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/runtime/replicas/internal/replica_random.h"
#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/strategies/core/internal/mean_loss_watch.h"
#include "lockstep/strategies/core/internal/run_failure.h"
#include "lockstep/strategies/core/internal/strategy_core.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {
namespace {

constexpr const char* kNoReplicaIsGood =
    ", and no replica with a good state: make the model and the optimizer again, from a checkpoint";

/// Aborts the channels at the same time: a replay that waits in the kernel of one may hold up the abort of
/// another, whose kernels its graph holds, too.
void abort_all(const std::vector<CollectiveChannel*>& channels, const std::string& reason) {
  std::vector<std::function<void()>> calls;
  for (auto* channel : channels) calls.push_back([channel, &reason] { channel->abort(reason); });
  call_at_once(calls);
}

}  // namespace

void Strategy::check_num_values(size_t count) const {
  if (count == core_->states.size()) return;
  throw InvalidArgument(c10::str("[", name(), "] run: expected arguments with a value for each of the ",
                                 core_->states.size(), " replicas, but got one with ", count,
                                 ": it belongs to another strategy"));
}

std::vector<CollectiveChannel*> Strategy::Core::usable_channels(const OptimizerGroups& groups) const {
  std::vector<CollectiveChannel*> channels = called_channels();
  for (const auto& group : groups) {
    const auto of_group = group->channels();
    channels.insert(channels.end(), of_group.begin(), of_group.end());
  }
  for (const auto* channel : channels) channel->check_usable();
  return channels;
}

void Strategy::Core::check_consistent(const OptimizerGroups& groups) {
  for (const auto& group : groups) {
    if (group->is_consistent()) continue;
    throw InconsistentReplicas(
        c10::str("[", config.name, "] a failed run left the replicas with ", group->describe_steps(),
                 best_replica(*group) ? ": call strategy.restore_consistency(model, optimizer) first"
                                      : kNoReplicaIsGood));
  }
}

bool Strategy::Core::looks_at_losses() const {
  constexpr int64_t kMostRuns = 16;  // for programs that never train
  return states.front().num_replicas > 1 && num_runs - num_runs_before_watch <= kMostRuns &&
         warnings->wants(UsageMistake::kMeanLoss) && !was_loss_seen;
}

void Strategy::Core::look_at_loss(const std::function<void()>& call) {
  const MeanLossWatch watch;
  call();
  was_loss_seen = watch.saw_backward();
  if (!watch.saw_mean()) return;
  warnings->warn(
      UsageMistake::kMeanLoss,
      c10::str("the loss is a mean over one replica's shard. Gradients are summed over the ",
               states.front().num_replicas,
               " replicas, so they become that many times as large as on one device: compute one loss "
               "for each example, with at::Reduction::None, and pass them to "
               "compute_average_loss(replica, losses)."));
}

void Strategy::Core::warn_without_gradients(const torch::optim::Optimizer& optimizer) {
  if (!warnings->wants(UsageMistake::kNoGradients)) return;
  bool has_parameters = false;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined()) return;
      has_parameters = true;
    }
  }
  if (!has_parameters) return;
  warnings->warn(
      UsageMistake::kNoGradients,
      "apply_gradients() found no gradient for any parameter of the optimizer, so the step changes "
      "nothing: compute the loss with the model that the replica function receives, not with one that "
      "it captures, and call backward() before.");
}

void Strategy::Core::note_gradients(int local) {
  const ReplicaState& state = states[static_cast<size_t>(local)];
  // The host is far ahead of an accelerator.
  if (state.device.is_accelerator()) synchronize_stream(current_stream(state.device.torch_device()));
  measured_weights->note_gradients(local, MeasuredWeights::Clock::now(), state.waits.seconds());
}

void Strategy::Core::note_times(const std::optional<BatchSizes>& sizes) {
  if (!measured_weights) return;
  measured_weights->end_run(sizes);
  if (!measured_weights->is_measuring()) measured_weights.reset();
}

void Strategy::Core::reset_after_failure(const std::vector<CollectiveChannel*>& channels,
                                         const OptimizerGroups& groups) {
  for (const auto& group : groups) group->check_steps();
  for (auto* channel : channels) channel->reset();
  for (const auto& binding : bindings) binding->reset();
  for (auto& state : states) state.accumulations = 0;
  for (const auto& group : groups) {
    for (int local = 0; local < static_cast<int>(states.size()); ++local) {
      if (auto* reducer = group->reducer(local)) reducer->reset();
    }
  }
}

void Strategy::run_replicas(const std::function<void(ReplicaContext&)>& fn,
                            const std::optional<BatchSizes>& sizes) {
  Core& core = *core_;
  core.check_caller("run");
  const auto optimizers = core.live_optimizers();
  const auto channels = core.usable_channels(optimizers);
  core.check_consistent(optimizers);

  before_run();
  const int64_t steps_before = core.num_steps(optimizers);
  RunFailure failure(first_replica_, core.num_runs++, &core.mesh);
  const auto begin = MeasuredWeights::Clock::now();
  const auto run_replica = [&](int local) {
    ReplicaState& state = core.states[static_cast<size_t>(local)];
    const ReplicaRandomGuard random(state.generator,
                                    core.mesh.cuts_models() ? &state.rank_generator : nullptr);
    for (const auto& group : optimizers) group->prepare(local);
    BatchInfo batch;
    if (sizes) batch = {sizes->global, sizes->local.at(static_cast<size_t>(local))};
    const ReplicaBackends backends = core.collectives->backends(local);
    const std::vector<ReplicaBackends> axes = core.axis_backends(local);
    ReplicaCollectives::Run in_run(*core.bindings[static_cast<size_t>(local)], backends.device, state.waits,
                                   axes, &state.rank_generator, &state.recording);
    if (core.measured_weights) core.measured_weights->begin(local, begin, state.waits.seconds());
    const bool are_all_here = state.num_replicas == num_replicas_;
    ReplicaContext replica(state, *this, are_all_here ? &backends : nullptr, batch,
                           are_all_here ? &axes : nullptr);
    if (local == 0 && core.looks_at_losses()) {
      core.look_at_loss([&] { fn(replica); });
    } else {
      fn(replica);
    }
    in_run.finish();
    for (auto* channel : channels) channel->leave(local);
  };
  const auto release_others = [&](int local, std::exception_ptr error) {
    failure.record(local, std::move(error));
    for (auto* channel : channels) channel->release(failure.reason());
    abort_all(channels, failure.reason());
  };
  try {
    for (auto* channel : channels) channel->enter();
    core.threads->run(run_replica, release_others);
    if (!failure.happened()) {
      for (auto* channel : channels) channel->check_complete();
    }
  } catch (...) {  // from a channel, or from a device that has failed for good
    failure.record(-1, std::current_exception());
  }
  if (!failure.happened()) {
    core.note_times(sizes);
    if (sizes && sizes->is_repeated && core.num_steps(optimizers) > steps_before) {
      core.warnings->warn(
          UsageMistake::kSameOrder,
          "the training takes the examples in the same order in every epoch, which usually trains "
          "worse: pass .shuffle_seed to distribute_dataset().");
    }
    return;
  }
  abort_all(channels, failure.reason());  // if no replica has done so
  core.reset_after_failure(channels, optimizers);
  failure.rethrow(name(), devices(), sizes);
}

void Strategy::before_run() {}

void Strategy::warn_of_training_mode(const ModulePointer& module) const {
  if (at::GradMode::is_enabled() || !module || !module->is_training()) return;
  if (!core_->warnings->wants(UsageMistake::kTrainingMode)) return;
  const auto submodules = module->modules();
  const auto depends = std::find_if(submodules.begin(), submodules.end(), [](const auto& submodule) {
    const std::string& type = submodule->name();
    return submodule->is_training() &&
           (type.find("Dropout") != std::string::npos || type.find("BatchNorm") != std::string::npos);
  });
  if (depends == submodules.end()) return;
  core_->warnings->warn(
      UsageMistake::kTrainingMode,
      c10::str("a run without gradients used a model in training mode, in which ", (*depends)->name(),
               " does not work as in evaluation: call model.eval() before the "
               "evaluation and model.train() after it."));
}

std::shared_ptr<OptimizerGroup> Strategy::optimizer_group(const torch::optim::Optimizer& optimizer) const {
  if (auto group = core_->find_optimizer(optimizer)) return group;
  throw InvalidArgument(
      c10::str("[", name(),
               "] expected an optimizer made by strategy.scope(), but got another, whose "
               "gradients are not summed over the replicas: write strategy.scope([&]"
               "(ReplicaContext& replica) { return SGD(model[replica]->parameters(), rate); })"));
}

void Strategy::reduce_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer) {
  const auto group = optimizer_group(optimizer);
  group->check_parameters(replica.local_replica_id());
  const int local = replica.local_replica_id();
  auto& state = core_->states[static_cast<size_t>(local)];
  if (core_->measured_weights && state.recording == nullptr) core_->note_gradients(local);
  const WaitClock::Wait wait(state.waits);
  if (auto* reducer = group->reducer(local)) {
    reducer->finish();
    reducer->gather();
  }
}

torch::Tensor Strategy::apply_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer,
                                        const ApplyOptions& options) {
  const auto group = optimizer_group(optimizer);
  const int local = replica.local_replica_id();
  group->check_parameters(local);
  auto* recording = core_->states[static_cast<size_t>(local)].recording;
  if (recording != nullptr) recording->note_used_gradients(parameters_of(optimizer));
  auto* reducer = group->reducer(local);
  if (core_->measured_weights && recording == nullptr) core_->note_gradients(local);
  if (reducer != nullptr) {
    const WaitClock::Wait wait(core_->states[static_cast<size_t>(local)].waits);
    reducer->finish();
  }
  if (recording == nullptr) core_->warn_without_gradients(optimizer);
  auto norm = clip_and_step(*group, local, optimizer, options);
  if (reducer != nullptr) reducer->mark_applied();
  if (recording == nullptr) {
    group->count_step(local);
  } else {
    recording->after_launch([weak = std::weak_ptr(group), local] {
      if (const auto counted = weak.lock()) counted->count_step(local);
    });
  }
  return norm;
}

void Strategy::restore_consistency(const std::vector<ModulePointer>& modules,
                                   const torch::optim::Optimizer& optimizer,
                                   std::vector<GradScaler>* scalers) {
  core_->check_caller("restore_consistency");
  const auto group = optimizer_group(optimizer);
  if (scalers == nullptr && group->has_scaler()) {
    throw InvalidArgument(c10::str("[", name(),
                                   "] expected restore_consistency(model, optimizer, scaler), but got no "
                                   "scaler: this optimizer is stepped with a GradScaler, and the replicas' "
                                   "scales may differ"));
  }
  const auto source = core_->best_replica(*group);
  if (!source) {
    throw InconsistentReplicas(c10::str("[", name(),
                                        "] restore_consistency: a failed run left the replicas with ",
                                        group->describe_steps(), kNoReplicaIsGood));
  }
  copy_module_state(modules, *source);
  group->copy_state_from(*source);
  if (scalers == nullptr) return;
  const GradScalerState state = scalers->at(*source).state();
  for (auto& scaler : *scalers) scaler.load_state(state);
}

}  // namespace lockstep
