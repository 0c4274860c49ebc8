#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "lockstep/training/state/internal/copied_states.h"
#include "lockstep/training/trainer/fit_state.h"
#include "lockstep/training/trainer/internal/meter_states.h"
#include "lockstep/training/trainer/step_meters.h"

namespace lockstep {

/// A copy, on each replica's device, of everything that a fit's steps change in this process's replicas:
/// parameters, buffers, states of optimizers and scalers, and the sums of loss and metrics. Of sharded
/// parameters and states, each replica copies its own part. Excludes random streams, the options of
/// optimizers, such as learning rates, and the position in the dataset.
class StepSnapshot {
 public:
  /// Makes the copy. `meters` has one entry per local replica, like every member of `objects`. Throws
  /// InvalidArgument for a metric without restore().
  StepSnapshot(const FitState::Objects& objects, const std::vector<StepMeters*>& meters);
  /// Restores the copy; may be called again.
  void restore(const FitState::Objects& objects, const std::vector<StepMeters*>& meters) const;

 private:
  struct OfReplica {
    std::vector<std::pair<at::Tensor, at::Tensor>> module_tensors;  // each with its copy
    CopiedStates optimizer;
    GradScalerState scaler;
    std::vector<MetricState> meters;
  };

  std::vector<OfReplica> replicas_;
};

}  // namespace lockstep
