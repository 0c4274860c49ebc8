#pragma once

namespace lockstep {

/// How the replicas' values become one, element by element: their sum, or the sum over the number of
/// replicas.
enum class ReduceOp { kSum, kMean };

}  // namespace lockstep
