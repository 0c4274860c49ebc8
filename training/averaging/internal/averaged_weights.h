#pragma once

#include <torch/types.h>

#include <vector>

#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/trainer/fit_state.h"

namespace lockstep {

/// How an average follows the buffers of a model, such as BatchNorm's running statistics.
enum class AveragedBuffers {
  kAverage,  ///< floating-point buffers are averaged as parameters are, others copied
  kCopy,     ///< all are the model's own at the last update
};

/// An average of a model's parameters and buffers on each local replica, next to the model. Parameters are
/// equal on all replicas, bit for bit, and so are their averages, since each replica computes the same.
class AveragedWeights {
 public:
  /// Copies the current model.
  explicit AveragedWeights(const FitState::Objects& objects);

  /// Moves the average towards the model: average += weight * (model - average). 1 copies the model.
  void update(const FitState::Objects& objects, double weight, AveragedBuffers buffers);
  /// Exchanges the values of the model and of the average, in place: the tensors stay the same.
  void swap(const FitState::Objects& objects);
  /// Returns whether every averaged parameter of the first local replica is finite.
  bool is_finite() const;

  /// Returns the average for a checkpoint: parameters once, buffers of each replica. A collective.
  StateValue::Dict save(const FitState::Objects& objects) const;
  /// Loads what save() returned. With another number of replicas, the buffers are combined (see
  /// BufferAggregation). Throws CheckpointError naming a tensor that does not fit the model.
  void load(const FitState::Objects& objects, const StateView& saved);

 private:
  struct OfReplica {
    std::vector<torch::Tensor> parameters;
    std::vector<torch::Tensor> buffers;
  };

  std::vector<OfReplica> replicas_;
};

}  // namespace lockstep
