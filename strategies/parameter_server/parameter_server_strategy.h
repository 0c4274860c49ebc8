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
  /// How the variables are cut; null: by a BalancedPartitioner for the servers that there are.
  std::shared_ptr<const Partitioner> partitioner;
  ServerPlacementPolicy placement = ServerPlacementPolicy::kRoundRobin;
  /// How many steps of other workers may come between the values that a step's gradient was computed with and
  /// the step itself. None: as many as come. With 0 all workers make each step together, from the same
  /// values: the training is that of a strategy whose replicas step together, bit for bit the same in each
  /// run.
  std::optional<uint64_t> max_staleness;
  /// With a staleness of 0, the parts that each step's batch is cut into, for as many workers to compute at
  /// the same time; 0: one for each worker of the cluster.
  int slots_per_step = 0;
  /// With another staleness than 0, a worker reads the next step's batch and values while it computes one,
  /// and sends the last one's gradients. So two of its own steps, too, can come between a step's values and
  /// the step. Off: it does one after the other.
  bool looks_ahead = true;
  /// The chief gets a line for each worker that comes or is lost, see CoordinatorOptions.
  std::function<void(const std::string&)> on_message;
  /// A worker is to go, see ClusterCoordinator::serve(). Empty: it stays.
  std::function<bool()> is_leaving;
};

/// The part of a training step that a worker computes in one closure.
struct StepSlot {
  int64_t step = 0;
  int slot = 0;  ///< of `num_slots` that make the step together
  int num_slots = 1;
};

/// What a step's function may be told beside its batches.
template <typename Batch>
struct StepOptions {
  /// Lists what a shard will look up in tables: their rows are then read ahead, all at once.
  std::function<void(const Batch& shard, TableLookups& lookups)> look_up;
  /// The function applies no gradients: its steps are an evaluation's.
  bool only_reads = false;
};

/// How workers have spent their time on the steps of run_steps(), in seconds, all of them together.
struct WorkerTimes {
  double computing = 0;
  double waiting = 0;  ///< for a batch, values of servers, or room to send gradients, and did not compute
  double idle = 0;     ///< without a step to compute, between two of a run_steps()

  double total() const { return computing + waiting + idle; }
};

/// What became of the updates that workers have sent.
struct UpdateCounts {
  /// By how many others came between its values and itself, the most of any shard: how many updates.
  std::map<uint64_t, int64_t> staleness;
  int64_t num_repeated = 0;  ///< that had been applied before, wholly or in part, and were not again
  /// That were not applied, wholly or in part, as their server had gone back to earlier values meanwhile.
  int64_t num_outdated = 0;
};

/// Throws InvalidArgument for an epoch without batches, and for steps that do not ascend from 0 on.
void check_has_batches(int64_t steps_per_epoch);
void check_steps(int64_t begin, int64_t end);

/// Batches by the number of a training step, cut into what the slots of the step compute. The same in every
/// process.
template <typename Batch>
class StepBatches {
 public:
  using Load = std::function<PerReplica<Batch>(int64_t epoch, const StepSlot& step)>;

  /// `load` gives the slot's part of batch number `step.step` of an epoch.
  StepBatches(Load load, int64_t steps_per_epoch, int num_slots)
      : load_(std::move(load)), steps_per_epoch_(steps_per_epoch), num_slots_(num_slots) {}

  int64_t steps_per_epoch() const { return steps_per_epoch_; }

  /// The slot's part of the step's batch, cut into a shard for each of this process's replicas. Epochs follow
  /// one another, each in its own order where the dataset is shuffled. Blocks while the batch is made. Throws
  /// what making it throws, and InvalidArgument for a step or slot that is none.
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

/// Trains by parameter servers: they hold the parameters and step them, workers compute gradients, each in
/// its own time, and a chief hands out the steps. Workers may be lost and come at any time; a server that is
/// started again goes on from what it has saved. The same train step as for any strategy: run() begins with
/// the servers' values, and what apply_gradients() is called for goes to the servers when the step ends.
///
/// All processes run the same program, but for the ps tasks (see serve_parameters()):
///
///   ParameterServerStrategy strategy;
///   auto model = strategy.scope(make_model);
///   auto optimizer = strategy.scope(make_optimizer);
///   auto batches = strategy.step_batches(dataset, {.global_batch_size = 1024, .shuffle_seed = 1});
///   strategy.define_step("train", batches, [&](const StepSlot&, PerReplica<Example>& batch) {
///     return strategy.reduce(ReduceOp::kSum, strategy.run(train_step, model, optimizer, batch));
///   });
///   if (strategy.serve()) return;  // a worker
///   strategy.run_steps("train", 0, 2000, [](int64_t step, const std::vector<ClosureValues>& losses) {});
///   strategy.end();
///
/// scope() puts the parameters of each optimizer onto the servers, with the chief's values; the others, and
/// the modules' buffers, are each process's own. What the replicas do together (the sum of gradients,
/// collectives, reduce()) concerns those of one process. Optimizers are never stepped here: the servers do as
/// update_rule_of() says, with the learning rate that the worker's optimizer has at the time. A run() outside
/// the function of define_step(), such as an evaluation's, only reads.
///
/// See also TrainingSteps, by which the same program trains under any strategy.
class ParameterServerStrategy : public Strategy {
 public:
  /// `resolver` null: what resolve_cluster() finds in the environment. Devices as for MirroredStrategy.
  ///
  /// The chief listens for workers from now on. Blocks until all servers have been reached, for
  /// `cluster.join_timeout` at most. Throws as MirroredStrategy and ClusterCoordinator, InvalidArgument for a
  /// job without servers or workers, and PeerLost naming a server that was not reached.
  explicit ParameterServerStrategy(std::shared_ptr<const ClusterResolver> resolver = nullptr,
                                   const std::vector<std::string>& devices = {},
                                   const ParameterServerOptions& parameters = {},
                                   const StrategyOptions& options = {},
                                   const ClusterOptions& cluster = cluster_options(process_environment()));
  ~ParameterServerStrategy() override;

  const ClusterResolver* cluster_resolver() const override { return &coordinator_->cluster_resolver(); }
  bool is_chief() const { return coordinator_->is_chief(); }
  ClusterCoordinator& coordinator() { return *coordinator_; }
  /// Whether the staleness is 0: all workers make each step together.
  bool makes_steps_together() const { return is_synchronous_; }
  /// Parts of each step's batch, that workers compute at the same time: 1 but with a staleness of 0.
  int slots_per_step() const { return slots_per_step_; }

  /// The batches of the steps, which are numbered on from epoch to epoch. Prefetch and workers of the options
  /// are of no effect. Throws as distribute_dataset(), and InvalidArgument for a dataset without examples.
  template <IndexedDataset D>
  auto step_batches(D dataset, const DistributeOptions& options) const {
    const auto source = make_indexed_source(std::move(dataset), options, placement());
    check_has_batches(*source->num_steps());
    const auto load = [source, num_local = num_local_replicas()](int64_t epoch, const StepSlot& step) {
      return *source->load_shards(epoch, step.step, step.slot * num_local, step.num_slots * num_local);
    };
    return StepBatches<BatchOf<D>>(load, *source->num_steps(), slots_per_step_);
  }

  /// Makes a training step known by a name, on this process: `fn(const StepSlot&, PerReplica<Batch>&)`, which
  /// returns nothing, one ClosureValue, or several in a std::tuple. It calls run() with a function that
  /// applies gradients, by each optimizer once at most where the staleness is 0. The replicas' random streams
  /// begin anew with each step, so that a step that runs again elsewhere draws the same numbers. Operators in
  /// `fn` that no replica runs have one thread.
  ///
  /// Batches are made and `options.look_up` is called by another thread, while the function runs. An update
  /// is known by its step's number, whatever the name.
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
  /// The same for `fn(const StepSlot&)`, which comes by its batches itself.
  template <typename Fn>
  void define_step(const std::string& name, Fn fn) {
    define_step_parts(name, {.load = nullptr,
                             .look_up = nullptr,
                             .run = [fn = std::move(fn)](
                                        const StepSlot& step,
                                        void*) mutable { return closure_results([&] { return fn(step); }); },
                             .only_reads = false});
  }

  /// Gets what a step's function has returned in each slot.
  using OnStep = std::function<void(int64_t step, const std::vector<ClosureValues>& values)>;

  /// The chief's part: has the workers make steps `begin` to `end` - 1, and calls `on_step` for each in their
  /// order, in the calling thread, with what the function returned in each slot. Blocks until all are made. A
  /// step that was made before, by this chief or an earlier one, is computed, but not applied again.
  ///
  /// Throws InvalidArgument on a worker and for a name that is not defined, what the function throws, and
  /// ClusterError where no worker is there
  /// for too long; with a staleness of 0 also PeerLost where a server was lost, whose values may be of
  /// another step then: the training has to go on from what was saved.
  void run_steps(const std::string& name, int64_t begin, int64_t end, const OnStep& on_step);

  /// The chief's: of all steps that run_steps() has had made.
  const UpdateCounts& update_counts() const { return update_counts_; }
  /// The chief's, likewise.
  const WorkerTimes& worker_times() const { return worker_times_; }

  /// What came of putting the variables onto the servers: in shards.
  struct VariableCounts {
    int64_t num_new = 0;            ///< that begin with the chief's values
    int64_t num_restored = 0;       ///< that go on from what the servers had saved
    std::set<std::string> sources;  ///< the checkpoints that those are from
  };
  const VariableCounts& variable_counts() const { return variable_counts_; }

  /// Has all servers save their shards in `folder`, a name that every one of them finds in the folder that it
  /// was given; what each of them answered. Blocks, by connections of its own, so that any thread may call
  /// it. Throws as ShardStorage::save(), and PeerLost.
  std::vector<std::string> save_on_servers(const std::string& folder) const;

  /// A worker's part: makes steps until the chief ends the job, or the worker is to go. False at once on the
  /// chief. Throws as
  /// ClusterCoordinator::serve().
  bool serve() override;
  /// The chief's, at the end of the job: ends the workers and the servers. Blocks until they know. The
  /// strategy is of no more use.
  void end() override;

  /// Clips and unscales the sum of this process's replicas, and hands it to the servers when the run ends.
  /// Throws InvalidArgument outside the function of define_step(), and where all slots' sum would be needed:
  /// for a norm or an enabled scaler with several slots.
  torch::Tensor apply_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer,
                                const ApplyOptions& options) override;

 protected:
  void on_modules(const std::vector<ModulePointer>& modules) override;
  void on_optimizers(const std::vector<torch::optim::Optimizer*>& optimizers) override;
  void before_run() override;

 private:
  /// What define_step() was told, whatever the types.
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
  std::vector<std::weak_ptr<torch::nn::Module>> tables_;  // that are a ServedTable
  std::map<std::string, StepParts> steps_;
  StepWork* work_ = nullptr;                          // what this worker runs
  std::chrono::steady_clock::time_point last_ran_{};  // when it last had run something
  int64_t last_run_ = 0;                              // of which run_steps() that was
  UpdateCounts update_counts_;
  WorkerTimes worker_times_;
  VariableCounts variable_counts_;
};

}  // namespace lockstep
