#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/collectives/mesh.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/runtime/replicas/internal/parameter_directory.h"
#include "lockstep/runtime/replicas/internal/replica_stream.h"
#include "lockstep/runtime/replicas/internal/replica_threads.h"
#include "lockstep/runtime/replicas/internal/usage_warnings.h"
#include "lockstep/runtime/replicas/replica_collectives.h"
#include "lockstep/strategies/core/internal/measured_weights.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {

/// State of a strategy: its replicas and everything made on them.
struct Strategy::Core {
  using OptimizerGroups = std::vector<std::shared_ptr<OptimizerGroup>>;

  StrategyConfig config;
  std::shared_ptr<const Devices> devices;
  std::string ops_reason;
  bool has_graphs = false;  // whether the devices of all replicas of all workers support graphs
  std::vector<ReplicaState> states;
  std::vector<ReplicaStream> streams;  // one per replica
  std::shared_ptr<ParameterDirectory> directory = std::make_shared<ParameterDirectory>();
  std::unique_ptr<CollectiveChannel> collectives;  // of all replicas
  Mesh mesh;                                       // of all ranks
  int num_ranks = 1;
  ShardingOptions sharding;                         // with its axis, if the stage is not 0
  std::shared_ptr<BatchShares> shares;              // null: equal pieces for good
  std::optional<MeasuredWeights> measured_weights;  // while they are measured
  /// The channels along the mesh's axes; null: the same as `collectives`.
  std::vector<std::unique_ptr<CollectiveChannel>> axes;
  /// The replicas' modules are bound to these.
  std::vector<std::shared_ptr<ReplicaCollectives>> bindings;
  std::vector<std::weak_ptr<OptimizerGroup>> optimizers;
  int64_t num_optimizers = 0;  // total ever made
  bool in_factory = false;
  /// Identifies the random state from which the last factories began, if there are other workers.
  uint64_t factory_random_state = 0;
  int64_t num_runs = 0;  // runs that began
  // The watch for a loss that is a mean, which begins again with each optimizer.
  int64_t num_runs_before_watch = 0;
  bool was_loss_seen = false;
  /// Made by the constructor, which knows the strategy's name.
  std::optional<UsageWarnings> warnings;
  // Last member, so that the threads end before anything they use is destroyed.
  std::unique_ptr<ReplicaThreads> threads;

  /// Returns the optimizers that still exist.
  OptimizerGroups live_optimizers() {
    OptimizerGroups live;
    std::erase_if(optimizers, [](const auto& group) { return group.expired(); });
    for (const auto& group : optimizers) live.push_back(group.lock());
    return live;
  }

  /// Returns the optimizer's group, or null if scope did not make it.
  std::shared_ptr<OptimizerGroup> find_optimizer(const torch::optim::Optimizer& optimizer) const {
    for (const auto& weak : optimizers) {
      if (auto group = weak.lock(); group && group->holds(optimizer)) return group;
    }
    return nullptr;
  }

  /// Returns the first of the replicas that have finished the most steps of this optimizer. Skips replicas
  /// whose last step, of any optimizer, used a truncated sum; returns none if that leaves no replica.
  std::optional<size_t> best_replica(const OptimizerGroup& group) {
    const auto& steps = group.finished_steps();
    const auto live = live_optimizers();
    std::optional<size_t> best;
    for (size_t replica = 0; replica < steps.size(); ++replica) {
      const bool is_good = std::none_of(live.begin(), live.end(),
                                        [&](const auto& other) { return other->was_cut_off(replica); });
      if (is_good && (!best || steps[replica] > steps[*best])) best = replica;
    }
    return best;
  }

  /// Returns how an optimizer's state is divided, with new channels if they are not all replicas: as the
  /// strategy's options say, or along the axis of the shards among its parameters. A collective of the
  /// workers. Throws InvalidArgument for shards along several axes, or together with the strategy's own
  /// sharding, and rethrows errors of CrossDeviceOps::make_grouped_channel().
  GradientSharding open_sharding(const torch::optim::Optimizer& optimizer) const;
  /// Opens the channels of the axes, and that of the replicas if they have several ranks. Rethrows errors of
  /// CrossDeviceOps::make_grouped_channel().
  void open_axes();
  /// Opens a channel for the gradients of an optimizer; null if there is one replica. Rethrows as
  /// open_axes().
  std::unique_ptr<CollectiveChannel> open_gradients() const;
  /// Returns the local replica's backends for each axis.
  std::vector<ReplicaBackends> axis_backends(int replica) const;
  /// Returns the channels in which replica functions call collectives: `collectives` and those of the axes.
  std::vector<CollectiveChannel*> called_channels() const;

  /// Returns the channels in which replicas may wait during a run with these optimizers. Throws the error of
  /// a channel that cannot be used any more.
  std::vector<CollectiveChannel*> usable_channels(const OptimizerGroups& groups) const;
  /// Throws InconsistentReplicas if a failed run left the replicas with different numbers of steps.
  void check_consistent(const OptimizerGroups& groups);
  /// Makes channels, optimizers and replicas usable again after a failed run that no replica is inside any
  /// more.
  void reset_after_failure(const std::vector<CollectiveChannel*>& channels, const OptimizerGroups& groups);

  /// Returns a function that blocks until all replicas have called theirs, for GraphRecording. Returns null
  /// if collectives occupy no device, or if there are no other replicas.
  std::function<void()> meeting_of(int replica) const;

  /// Returns how many steps of all optimizers the first local replica has finished.
  static int64_t num_steps(const OptimizerGroups& groups) {
    int64_t steps = 0;
    for (const auto& group : groups) steps += group->finished_steps().front();
    return steps;
  }
  /// Has the next runs look at their losses.
  void watch_losses() {
    num_runs_before_watch = num_runs;
    was_loss_seen = false;
  }
  /// Whether the run that has begun is among the first since watch_losses(), and no backward was seen in one
  /// of them. Called by local replica 0, as is look_at_loss().
  bool looks_at_losses() const;
  /// Warns if the loss of `call`'s first backward is a mean over the replica's own shard.
  void look_at_loss(const std::function<void()>& call);
  /// Warns if none of the optimizer's parameters has a gradient to apply.
  void warn_without_gradients(const torch::optim::Optimizer& optimizer);

  /// Notes for measured weights that the local rank has computed its gradients. Blocks until its device has.
  /// In the rank's thread.
  void note_gradients(int local);
  /// Gives the run's times to measured weights, and ends the measurement if that was the last one.
  void note_times(const std::optional<BatchSizes>& sizes);

  /// Throws InvalidArgument inside a replica function or a factory. `call` is the name for the error.
  void check_caller(const char* call) const {
    if (threads->contains_current_thread()) {
      throw InvalidArgument("[" + config.name + "] " + call +
                            " was called inside a replica function: replicas run already");
    }
    if (in_factory)
      throw InvalidArgument("[" + config.name + "] " + call + " was called inside a scope's factory");
  }
};

/// Returns the division of batches that `config` asks for among the mesh's replicas, or null for equal
/// pieces. Throws InvalidArgument as StrategyOptions says.
std::shared_ptr<BatchShares> checked_shares(const StrategyConfig& config, const Mesh& mesh);

/// Returns the sharding that `config` asks for, with its axis. Throws InvalidArgument as StrategyOptions
/// says.
ShardingOptions checked_sharding(const StrategyConfig& config, const Mesh& mesh);

}  // namespace lockstep
