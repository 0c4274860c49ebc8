#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/variables/initial_values.h"
#include "lockstep/parameter_server/variables/partitioner.h"
#include "lockstep/parameter_server/variables/server_placement.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/strategies/coordinator/cluster_coordinator.h"
#include "lockstep/strategies/input/indexed_source.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"
#include "lockstep/strategies/nn/table_lookups.h"

namespace lockstep {

class ServedVariables;
struct ParameterClientOptions;

struct ParameterServerOptions {
  /// How variables are split. Null: by a BalancedPartitioner for the number of servers.
  std::shared_ptr<const Partitioner> partitioner;
  ServerPlacementPolicy placement = ServerPlacementPolicy::kRoundRobin;
  /// Limits how many steps of other workers may come between reading the values that a step's gradient is
  /// computed from and applying that step. None: no limit. With 0, all workers make each step together, from
  /// the same values: training is that of a strategy whose replicas step together, and bit-identical in each
  /// run.
  std::optional<uint64_t> max_staleness;
  /// With a staleness of 0: the number of parts of each step's batch, which workers compute at the same time.
  /// 0: one for each worker of the cluster.
  int slots_per_step = 0;
  /// With any other staleness: whether a worker reads the next step's batch and values, and sends the last
  /// step's gradients, while it computes. Then two of its own steps can also come between a step's values and
  /// the step. If false, it does one after another.
  bool looks_ahead = true;
  /// Called on the chief with a line for each worker that comes or is lost; see CoordinatorOptions.
  std::function<void(const std::string&)> on_message;
  /// Returns whether this process is asked to end: a worker then leaves, see ClusterCoordinator::serve(), and
  /// a chief does not wait for workers to come back, see CoordinatorOptions::is_ending. Empty: they stay.
  std::function<bool()> is_leaving;
};

/// The part of a training step that a worker computes in one closure.
struct StepSlot {
  int64_t step = 0;
  int slot = 0;  ///< One of `num_slots`, which make the step together.
  int num_slots = 1;
};

/// Options of a step's function.
template <typename Batch>
struct StepOptions {
  /// Lists the ids that a shard will look up in tables, so that their rows are read ahead, all at the same
  /// time.
  std::function<void(const Batch& shard, TableLookups& lookups)> look_up;
  /// Whether the function applies no gradients, as in an evaluation.
  bool only_reads = false;
};

/// Seconds that all workers together have spent on the steps of run_steps().
struct WorkerTimes {
  double computing = 0;
  /// Waiting for a batch, for values of servers or for room to send gradients, and not computing.
  double waiting = 0;
  /// Without a step to compute, between two steps of one run_steps().
  double idle = 0;

  double total() const { return computing + waiting + idle; }
};

/// Counts of the updates that workers have sent.
struct UpdateCounts {
  /// Maps a staleness to a number of updates. The staleness of an update is the number of other updates
  /// between its values and itself, the largest over its shards.
  std::map<uint64_t, int64_t> staleness;
  /// Updates that had been applied before, in whole or in part, and were not applied again.
  int64_t num_repeated = 0;
  /// Updates that were not applied, in whole or in part, because their server had gone back to earlier values
  /// meanwhile.
  int64_t num_outdated = 0;
};

/// Throws InvalidArgument for an epoch without batches.
void check_has_batches(int64_t steps_per_epoch);
/// Throws InvalidArgument for steps that do not ascend from 0 on.
void check_steps(int64_t begin, int64_t end);

/// Batches by the number of a training step, split into the parts that the step's slots compute. The same in
/// every process.
///
/// Example:
///
///     auto batches = strategy.step_batches(dataset, {.global_batch_size = 1024, .shuffle_seed = 1});
///     auto first = batches.at({.step = 0, .slot = 0, .num_slots = strategy.slots_per_step()});
template <typename Batch>
class StepBatches {
 public:
  using Load = std::function<PerReplica<Batch>(int64_t epoch, const StepSlot& step)>;

  /// `load` returns the slot's part of batch number `step.step` of an epoch.
  StepBatches(Load load, int64_t steps_per_epoch, int num_slots)
      : load_(std::move(load)), steps_per_epoch_(steps_per_epoch), num_slots_(num_slots) {}

  int64_t steps_per_epoch() const { return steps_per_epoch_; }

  /// Returns the slot's part of the step's batch, cut into a shard for each of this process's replicas.
  /// Epochs follow one another, each with its own order if the dataset is shuffled. Blocks while the batch is
  /// made. Rethrows errors of making it, and throws InvalidArgument for an invalid step or slot.
  PerReplica<Batch> at(const StepSlot& step) const {
    if (step.step < 0 || step.slot < 0 || step.slot >= step.num_slots || step.num_slots != num_slots_)
      throw InvalidArgument("[StepBatches] expected a step of " + std::to_string(num_slots_) +
                            " slots, but got step " + std::to_string(step.step) + ", slot " +
                            std::to_string(step.slot) + " of " + std::to_string(step.num_slots));
    return load_(step.step / steps_per_epoch_, {step.step % steps_per_epoch_, step.slot, step.num_slots});
  }

 private:
  Load load_;
  int64_t steps_per_epoch_;
  int num_slots_;
};

/// Trains with parameter servers. Servers hold the parameters and step them, workers compute gradients at
/// their own pace, and a chief hands out the steps. Workers may be lost and come at any time. A restarted
/// server resumes from its last save. The train step is the same as for any strategy: run() begins with the
/// servers' values, and gradients passed to apply_gradients() go to the servers when the step ends.
///
/// All processes run the same program, except the ps tasks (see serve_parameters()). scope() puts the
/// parameters of each optimizer on the servers, with the chief's values. Other parameters, and the modules'
/// buffers, are local to each process. Everything that replicas do together (sums of gradients, collectives,
/// reduce()) covers only the replicas of one process. Optimizers are never stepped here: the servers apply
/// update_rule_of(), with the current learning rate of the worker's optimizer. A run() outside the function
/// of define_step(), for instance in an evaluation, only reads.
///
/// See also TrainingSteps, with which the same program trains under any strategy.
///
/// Example:
///
///     ParameterServerStrategy strategy;
///     auto model = strategy.scope(make_model);
///     auto optimizer = strategy.scope(make_optimizer);
///     auto batches = strategy.step_batches(dataset, {.global_batch_size = 1024, .shuffle_seed = 1});
///     strategy.define_step("train", batches, [&](const StepSlot&, PerReplica<Example>& batch) {
///       return strategy.reduce(ReduceOp::kSum, strategy.run(train_step, model, optimizer, batch));
///     });
///     if (strategy.serve()) return;  // a worker
///     strategy.run_steps("train", 0, 2000, [](int64_t step, const std::vector<ClosureValues>& losses) {});
///     strategy.end();
class ParameterServerStrategy : public Strategy {
 public:
  /// A null `resolver` uses the cluster that resolve_cluster() finds in the environment. Devices are as for
  /// MirroredStrategy.
  ///
  /// From now on, the chief listens for workers. Blocks until all servers have been reached, at most
  /// `cluster.join_timeout`. Throws as MirroredStrategy and ClusterCoordinator, InvalidArgument for a job
  /// without servers or workers and for slots that do not suit the staleness, and PeerLost naming a server
  /// that was not reached.
  explicit ParameterServerStrategy(std::shared_ptr<const ClusterResolver> resolver = nullptr,
                                   const std::vector<std::string>& devices = {},
                                   const ParameterServerOptions& parameters = {},
                                   const StrategyOptions& options = {},
                                   const ClusterOptions& cluster = cluster_options(process_environment()));
  ~ParameterServerStrategy() override;

  const ClusterResolver* cluster_resolver() const override { return &coordinator_->cluster_resolver(); }
  bool is_chief() const { return coordinator_->is_chief(); }
  ClusterCoordinator& coordinator() { return *coordinator_; }
  /// Returns whether the staleness is 0, so that all workers make each step together.
  bool makes_steps_together() const { return is_synchronous_; }
  /// Returns the number of parts of each step's batch, which workers compute at the same time. Always 1
  /// unless the staleness is 0.
  int slots_per_step() const { return slots_per_step_; }

  /// Returns the batches of the steps, which are numbered continuously over epochs. Ignores `prefetch` and
  /// `num_workers`. Throws as distribute_dataset(), and InvalidArgument for a dataset without batches.
  template <IndexedDataset D>
  auto step_batches(D dataset, const DistributeOptions& options) const {
    const auto source = make_indexed_source(std::move(dataset), options, placement());
    check_has_batches(*source->num_steps());
    const auto load = [source, num_local = num_local_replicas()](int64_t epoch, const StepSlot& step) {
      return *source->load_shards(epoch, step.step, step.slot * num_local, step.num_slots * num_local);
    };
    return StepBatches<BatchOf<D>>(load, *source->num_steps(), slots_per_step_);
  }

  /// Defines a training step of this name on this process. `fn(const StepSlot&, PerReplica<Batch>&)` returns
  /// nothing, one ClosureValue, or several in a std::tuple. It calls run() with a function that applies
  /// gradients; if the staleness is 0, at most once with each optimizer. The replicas' random streams restart
  /// at each step, so that a step that runs again elsewhere draws the same numbers. Operators that `fn` calls
  /// outside replicas use one thread.
  ///
  /// While the function runs, another thread makes batches and calls `options.look_up`. Updates are
  /// identified by their step number, whatever the name.
  template <typename Batch, typename Fn>
  void define_step(const std::string& name, const StepBatches<Batch>& batches, Fn fn,
                   StepOptions<Batch> options = {}) {
    using Batches = PerReplica<Batch>;
    define_step_parts(name,
                      {.load = [batches](const StepSlot& step) -> std::shared_ptr<void> {
                         return std::make_shared<Batches>(batches.at(step));
                       },
                       .look_up =
                           [look_up = std::move(options.look_up)](const void* batch, TableLookups& lookups) {
                             if (!look_up) return;
                             for (const auto& shard : static_cast<const Batches*>(batch)->local_values())
                               look_up(shard, lookups);
                           },
                       .run =
                           [fn = std::move(fn)](const StepSlot& step, void* batch) mutable {
                             return closure_results([&] { return fn(step, *static_cast<Batches*>(batch)); });
                           },
                       .only_reads = options.only_reads});
  }
  /// The same for `fn(const StepSlot&)`, which gets its batches itself.
  template <typename Fn>
  void define_step(const std::string& name, Fn fn) {
    define_step_parts(name, {.load = nullptr,
                             .look_up = nullptr,
                             .run = [fn = std::move(fn)](
                                        const StepSlot& step,
                                        void*) mutable { return closure_results([&] { return fn(step); }); },
                             .only_reads = false});
  }

  /// Called with the function's results in each slot of a step.
  using OnStep = std::function<void(int64_t step, const std::vector<ClosureValues>& values)>;

  /// Has the workers make steps `begin` to `end` - 1. Call it on the chief. Calls `on_step` for each step in
  /// order, in the calling thread, with the function's results in each slot. Blocks until all steps are made.
  /// A step that this chief or an earlier one has made before is computed, but not applied again.
  ///
  /// Throws InvalidArgument on a worker and for an undefined name, and ClusterError if there is no worker for
  /// too long, and rethrows errors of the function. Throws ClosureCancelled if `is_leaving` returns true on
  /// this chief and all workers have left; steps that `on_step` was not called for may then be missing. With
  /// a staleness of 0, throws PeerLost if a server was lost: its values may then be of another step, so
  /// resume the training from what was saved.
  void run_steps(const std::string& name, int64_t begin, int64_t end, const OnStep& on_step);

  /// Returns, on the chief, the counts over all steps that run_steps() has made.
  const UpdateCounts& update_counts() const { return update_counts_; }
  /// Returns, on the chief, the times over all steps that run_steps() has made.
  const WorkerTimes& worker_times() const { return worker_times_; }

  /// Number of shards by the origin of their initial values on the servers.
  struct VariableCounts {
    /// Shards that begin with the chief's values.
    int64_t num_new = 0;
    /// Shards that continue from the values that the servers had saved.
    int64_t num_restored = 0;
    /// Checkpoints of the restored shards.
    std::set<std::string> sources;
  };
  const VariableCounts& variable_counts() const { return variable_counts_; }

  /// Has all servers save their shards in `folder`, a name relative to the folder that each server was given.
  /// Returns the answer of each server. Blocks. May be called from any thread, because it uses connections of
  /// its own. Throws as ShardStorage::save(), and PeerLost.
  std::vector<std::string> save_on_servers(const std::string& folder) const;

  /// On a worker, makes steps until the chief ends the job or the worker should leave, then returns true. On
  /// the chief, returns false at once. Throws as ClusterCoordinator::serve().
  bool serve() override;
  /// On the chief, ends the job's workers and servers. Blocks until they know. The strategy is unusable
  /// afterwards.
  void end() override;

  /// Clips and unscales the gradients' sum over this process's replicas, and hands it to the servers when the
  /// run ends. Throws InvalidArgument outside the function of define_step() and in a step that only reads.
  /// Also throws it if the sum over all slots would be needed: for a norm or an enabled scaler with several
  /// slots.
  torch::Tensor apply_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer,
                                const ApplyOptions& options) override;

 protected:
  void on_modules(const std::vector<ModulePointer>& modules) override;
  void on_optimizers(const std::vector<torch::optim::Optimizer*>& optimizers) override;
  void before_run() override;

 private:
  /// Arguments of define_step(), without their types.
  struct StepParts {
    std::function<std::shared_ptr<void>(const StepSlot&)> load;
    std::function<void(const void* batch, TableLookups&)> look_up;
    std::function<ClosureValues(const StepSlot&, void* batch)> run;
    bool only_reads = false;
  };
  class StepWork;

  void define_step_parts(const std::string& name, StepParts parts);
  const ServedTable* table_of(const torch::Tensor& parameter) const;
  std::vector<RemoteValue> schedule_slots(const std::string& name, int64_t step, int64_t run);
  std::vector<ClosureValues> fetch_slots(const std::vector<RemoteValue>& slots);
  void run_apart(const std::string& name, int64_t begin, int64_t end, const OnStep& on_step);
  void run_together(const std::string& name, int64_t begin, int64_t end, const OnStep& on_step);

  const uint64_t seed_;
  const bool is_synchronous_;
  const bool looks_ahead_;
  const std::function<bool()> is_leaving_;
  int slots_per_step_ = 1;
  std::unique_ptr<ParameterClientOptions> client_options_;
  std::unique_ptr<ClusterCoordinator> coordinator_;
  std::shared_ptr<ServedVariables> variables_;
  std::vector<std::weak_ptr<torch::nn::Module>> tables_;  // modules that are a ServedTable
  std::map<std::string, StepParts> steps_;
  StepWork* work_ = nullptr;                          // the work that this worker runs
  std::chrono::steady_clock::time_point last_ran_{};  // when it last finished running something
  int64_t last_run_ = 0;                              // the run_steps() call of that
  UpdateCounts update_counts_;
  WorkerTimes worker_times_;
  VariableCounts variable_counts_;
};

}  // namespace lockstep
