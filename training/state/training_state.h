#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/formats/named_tensors.h"
#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/state/metric_access.h"
#include "lockstep/training/state/training_progress.h"

namespace lockstep {

class StateView;

/// One of `count` parts of a state; for instance, each worker writes one.
struct StateShard {
  int index = 0;
  int count = 1;
};

/// Saves and restores everything a run needs to continue: the model, each replica's buffers and random
/// stream, optimizers, scalers, metrics and progress. docs/checkpoints.md describes the file and how Python
/// reads it.
///
/// Not thread-safe: call it from one thread, between runs of the strategy. The objects that you add must
/// outlive it.
///
/// Example:
///
///     TrainingState state(strategy);
///     state.add_model(model);
///     state.add_optimizer("optimizer", optimizer);
///     state.save("last.pt", {.epoch = 3, .step = 1200});
class TrainingState {
 public:
  explicit TrainingState(Strategy& strategy) : strategy_(&strategy) {}

  /// Adds the model. Throws InvalidArgument if there is one already.
  template <ModuleLike T>
  void add_model(Mirrored<T>& model) {
    add_model(module_pointers(model.local_values()));
  }

  /// Adds an optimizer under a unique name. Throws InvalidArgument if the name is in use, or for a kind of
  /// optimizer that optimizer_state() does not support.
  template <OptimizerLike T>
  void add_optimizer(const std::string& name, Mirrored<T>& optimizer) {
    std::vector<torch::optim::Optimizer*> optimizers;
    for (auto& value : optimizer.local_values()) optimizers.push_back(&optimizer_reference(value));
    add_optimizer(name, std::move(optimizers));
  }

  /// Adds the scaler. Throws InvalidArgument if there is one already.
  void add_scaler(Mirrored<GradScaler>& scaler);

  /// Adds a metric of a hand-written loop under a unique name, so that a run that resumes within an epoch
  /// keeps counting. Throws InvalidArgument if the name is in use.
  template <Metric M>
  requires RestorableMetric<M>
  void add_metric(const std::string& name, PerReplica<M>& metric) {
    std::vector<MetricAccess> replicas;
    for (M& local : metric.local_values()) replicas.push_back(metric_access(name, M::kMerge, local));
    add_metric(std::move(replicas));
  }

  /// Add objects without their types: one for each local replica, in order.
  void add_model(std::vector<ModulePointer> replicas);
  void add_optimizer(const std::string& name, std::vector<torch::optim::Optimizer*> replicas);
  void add_scaler(std::vector<GradScaler*> replicas);
  void add_metric(std::vector<MetricAccess> replicas);

  /// Returns the current state, as save() writes it. A collective: the worker with replica 0 gets the state,
  /// with whole parameters if they are sharded, and the others get an empty one. With several shards, each
  /// worker gets the shard of its index: a part of the parameters and of the optimizers' tensors, and in
  /// shard 0 also everything else. load_checkpoint() joins the shards. Tensors share memory with the
  /// parameters and optimizers: write them before the next step.
  ///
  /// Throws InvalidArgument without a model, and, with several shards, on all workers if a worker's tensors
  /// differ from those of worker 0. Throws InconsistentReplicas if a buffer that is declared the same on all
  /// replicas differs.
  StateValue::Dict snapshot(const TrainingProgress& progress, const StateShard& shard = {});

  /// The state of a training whose replicas may hold parts of it.
  struct Collected {
    /// The result of snapshot(), except that stand-ins without memory take the place of parameters and
    /// tensors of optimizers of which the replicas hold parts.
    StateValue::Dict own;
    /// Holds all stand-ins, on every worker, in the order in which all workers put them together.
    StateValue::Dict shared;
  };
  /// Does what snapshot() does, but puts no parameter together, so that a file can be written without holding
  /// all of them. Lockstep's writers of checkpoints use it.
  Collected collect(const TrainingProgress& progress, const StateShard& shard = {});

  /// Writes the state to a file, first next to `path`, so that a failure leaves the old file intact. With
  /// several workers it is a collective: all must call it, and the one with replica 0 writes. Blocks for the
  /// devices and the disk. Sharded parameters and states are put together and written one after another, so
  /// that no worker holds all of them.
  ///
  /// Throws InvalidArgument without a model, and the errors of save_state_file().
  void save(const std::string& path, const TrainingProgress& progress);

  /// Restores every local replica. With as many replicas as were saved, each one gets its own buffers and
  /// continues its own random stream. With another number, the buffers are combined as the
  /// module declares (see BufferAggregation; by default the mean, integers: replica 0's), and random streams
  /// stay unchanged, as they do on another kind of device. Metrics keep their sums on any number of replicas,
  /// and start from 0 if the file has none. With several workers, each one reads the file.
  ///
  /// Throws CheckpointError for a damaged file, a later format, or the state of another model or optimizer,
  /// naming the first tensor that differs, with both shapes; earlier parts have been restored by then. Throws
  /// InvalidArgument without a model.
  TrainingProgress load(const std::string& path);
  /// Restores from a state that the file `source` held, as load() does.
  TrainingProgress restore(const StateValue& state, const std::string& source);

 private:
  StateValue::Dict save_shared() const;
  void check_same_tensors(const StateValue::Dict& shared) const;
  StateValue::Dict save_gradient_orders() const;
  StateValue::Dict save_gradient_kinds() const;
  StateValue::Dict save_replicas(const NamedTensors& stacked_buffers);
  void load_optimizers(const StateView& saved, const std::string& source);
  void load_gradient_orders(const StateView& saved);
  void load_gradient_kinds(const StateView& saved);
  void load_scalers(const StateView& saved);
  void load_replicas(const StateView& saved);
  void load_metrics(const StateView& state);

  Strategy* strategy_;
  std::vector<ModulePointer> model_;  // one for each local replica, as all below
  std::map<std::string, std::vector<torch::optim::Optimizer*>> optimizers_;
  std::vector<GradScaler*> scalers_;
  std::vector<std::vector<MetricAccess>> metrics_;
};

}  // namespace lockstep
