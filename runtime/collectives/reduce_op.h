#pragma once

namespace lockstep {

/// How the replicas' values are combined, element by element: summed, or averaged over the replicas.
enum class ReduceOp { kSum, kMean };

}  // namespace lockstep
