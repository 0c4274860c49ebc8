#pragma once

#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/numbered_dataset.h"

namespace lockstep {

/// Each replica's examples in each batch, as epoch_of() gives them.
using Epoch = std::vector<std::vector<Numbers>>;

/// A strategy with this many replicas on the CPU, each with one thread.
class OnReplicas {
 public:
  explicit OnReplicas(int replicas) : strategy_(cpu_devices(replicas), {.intra_op_threads = 1}) {}
  MirroredStrategy* operator->() { return &strategy_; }

 private:
  MirroredStrategy strategy_;
};

}  // namespace lockstep
