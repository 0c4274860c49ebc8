#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/trainer/fit_state.h"
#include "lockstep/training/trainer/internal/meter_states.h"
#include "lockstep/training/trainer/step_meters.h"

namespace lockstep {

/// What a fit's steps change of this process's replicas, copied where it lies, on each replica's device:
/// parameters, buffers, states of optimizers and scalers, and what loss and metrics have summed up. Random
/// streams, learning rates and the place in the dataset are not in it.
class StepSnapshot {
 public:
  /// Copies. `meters` is one a local replica, as all of `objects`. Throws InvalidArgument for a metric
  /// without restore().
  StepSnapshot(const FitState::Objects& objects, const std::vector<StepMeters*>& meters);
  /// Puts it back; may be called again.
  void restore(const FitState::Objects& objects, const std::vector<StepMeters*>& meters) const;

 private:
  struct OfReplica {
    std::vector<std::pair<at::Tensor, at::Tensor>> module_tensors;  // each with its copy
    StateValue optimizer;
    GradScalerState scaler;
    std::vector<MetricState> meters;
  };

  std::vector<OfReplica> replicas_;
};

}  // namespace lockstep
