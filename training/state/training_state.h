#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/state/training_progress.h"

namespace lockstep {

class StateView;

/// One of the parts that a state is cut into, such as each worker writes.
struct StateShard {
  int index = 0;
  int count = 1;
};

/// Saves and restores everything that a run goes on from: the model, each replica's buffers and random
/// stream, optimizers, scalers and progress. It refers to these objects, which outlive it:
///
///     TrainingState state(strategy);
///     state.add_model(model);
///     state.add_optimizer("optimizer", optimizer);
///     state.save("last.pt", {.epoch = 3, .step = 1200});
///
/// docs/checkpoints.md says what the file holds, and how Python reads it. Used between runs of the strategy,
/// by one thread.
class TrainingState {
 public:
  explicit TrainingState(Strategy& strategy) : strategy_(&strategy) {}

  /// The one model. Throws InvalidArgument for a second.
  template <ModuleLike T>
  void add_model(Mirrored<T>& model) {
    add_model(module_pointers(model.local_values()));
  }

  /// One of several optimizers, by a name of its own, of the kinds that optimizer_state() takes. Throws
  /// InvalidArgument for a name given twice.
  template <OptimizerLike T>
  void add_optimizer(const std::string& name, Mirrored<T>& optimizer) {
    std::vector<torch::optim::Optimizer*> optimizers;
    for (auto& value : optimizer.local_values()) optimizers.push_back(&optimizer_reference(value));
    add_optimizer(name, std::move(optimizers));
  }

  /// Throws InvalidArgument for a second.
  void add_scaler(Mirrored<GradScaler>& scaler);

  /// The same for objects without their types, one each for every local replica, in order.
  void add_model(std::vector<ModulePointer> replicas);
  void add_optimizer(const std::string& name, std::vector<torch::optim::Optimizer*> replicas);
  void add_scaler(std::vector<GradScaler*> replicas);

  /// What save() writes, as it is now: a collective with several workers, of which the one with replica 0
  /// gets it and the others an empty one. Tensors share the memory of the optimizers and parameters: write it
  /// before the next step. With several shards each worker gets the one of its index: of the parameters and
  /// the optimizers' tensors a part, and shard 0 all else; load_checkpoint() puts them together. Throws
  /// InvalidArgument on all where a worker has other tensors than worker 0.
  StateValue::Dict snapshot(const TrainingProgress& progress, const StateShard& shard = {});

  /// Writes the file, beside `path` first, so that a failure leaves what was there. With several workers it
  /// is a collective: all call it, and the one with replica 0 writes. Waits for the devices and the disk.
  ///
  /// Throws InvalidArgument without a model, and what save_state_file() throws.
  void save(const std::string& path, const TrainingProgress& progress);

  /// Restores every local replica. With as many replicas as were saved, each gets its own buffers and goes on
  /// with its own random stream; with another number of them, all get the buffers' mean (integers: replica
  /// 0's), and random streams stay as they are, as they do on another kind of device. With several workers,
  /// each reads the file.
  ///
  /// Throws CheckpointError for a damaged file, one of a later format, and one of another model or optimizer,
  /// naming the first tensor that differs with both shapes; parts before that have been restored then.
  TrainingProgress load(const std::string& path);
  /// The same of what a file `source` held.
  TrainingProgress restore(const StateValue& state, const std::string& source);

 private:
  StateValue::Dict save_shared() const;
  void check_same_tensors(const StateValue::Dict& shared) const;
  StateValue::Dict save_gradient_orders() const;
  StateValue::Dict save_replicas();
  void load_optimizers(const StateView& saved, const std::string& source);
  void load_gradient_orders(const StateView& saved);
  void load_scalers(const StateView& saved);
  void load_replicas(const StateView& saved);

  Strategy* strategy_;
  std::vector<ModulePointer> model_;  // of each local replica, as all below
  std::map<std::string, std::vector<torch::optim::Optimizer*>> optimizers_;
  std::vector<GradScaler*> scalers_;
};

}  // namespace lockstep
