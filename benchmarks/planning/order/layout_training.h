#pragma once

#include <functional>

#include "lockstep/benchmarks/planning/order/order_case.h"

namespace lockstep::benchmarks {

/// Trains a case's model in a layout: by a MirroredStrategy with the layout's mesh and sharding, as train_gpt
/// does.
class LayoutTraining {
 public:
  /// `cluster` has the rates of emulated devices; other cases use its number of devices only.
  LayoutTraining(const OrderCase& order_case, const PlannedLayout& layout);

  /// Makes a step of all replicas. Returns its seconds: those of the clocks of emulated devices, until the
  /// last of them is done.
  double step() { return step_(); }

 private:
  std::function<double()> step_;
};

}  // namespace lockstep::benchmarks
