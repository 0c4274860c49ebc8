#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <memory>
#include <vector>

#include "lockstep/runtime/backends/internal/hierarchical_stages.h"
#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/workers/worker_layout.h"

namespace lockstep {

/// The sum, or what `op` says, of the outputs of all replicas of all workers, in place. Complex numbers are
/// pairs of real ones. `compression` may be null. Throws InvalidArgument where two replicas bring the same
/// memory.
HierarchicalStages sum_course(const std::vector<ReplicaRendezvous::Arrival>& arrivals,
                              c10d::ReduceOp::RedOpType op, const WorkerLayout& layout,
                              const std::shared_ptr<GradientCompression>& compression);

}  // namespace lockstep
