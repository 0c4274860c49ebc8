#pragma once

#include <torch/types.h>

#include <vector>

#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/state/internal/model_copies.h"
#include "lockstep/training/trainer/fit_state.h"

namespace lockstep {

/// How an average follows the buffers of a model, such as BatchNorm's running statistics.
enum class AveragedBuffers {
  kAverage,  ///< floating-point buffers are averaged as parameters are, others copied
  kCopy,     ///< all are the model's own at the last update
};

/// An average of a model's parameters and buffers on each local replica. It is kept next to the model, and
/// can be exchanged with it. Parameters are equal on all replicas, bit for bit, and so are their averages,
/// since each replica computes the same. Of a sharded parameter, each replica averages its shard.
class AveragedWeights {
 public:
  /// Moves the average towards the model: average += weight * (model - average). The first update copies the
  /// model, as a weight of 1 does. Call it while the average is not in the model.
  void update(const FitState::Objects& objects, double weight, AveragedBuffers buffers);
  /// Returns to the state before the first update, and leaves the model as it is.
  void clear();

  /// Exchanges the values of the model and of the average, in place: the tensors stay the same. Returns
  /// whether it did: not if the average is in the model already, or has had no update.
  bool put_into_model(const FitState::Objects& objects);
  /// Undoes put_into_model(). Does nothing if the average is not in the model.
  void take_out_of_model(const FitState::Objects& objects);

  /// Returns whether every averaged parameter is finite; true before the first update. A collective if
  /// parameters are sharded, and otherwise the same on all workers, since replicas are equal.
  bool is_finite(const FitState::Objects& objects) const;

  /// Takes the average out of the model, whose own weights belong in the checkpoint, and returns the average
  /// to save with it, as save_copies() does; nothing before the first update. A collective.
  StateValue save(const FitState::Objects& objects);
  /// Loads the result of save(). With another number of replicas, the buffers are combined (see
  /// BufferAggregation). Throws CheckpointError naming a tensor that does not fit the model.
  void load(const FitState::Objects& objects, const StateView& saved);

 private:
  void swap(const FitState::Objects& objects) const;

  std::vector<ModelCopy> replicas_;  // empty before the first update
  bool is_in_model_ = false;
};

}  // namespace lockstep
