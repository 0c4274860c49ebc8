#pragma once

namespace lockstep {

enum class ReduceOp { kSum, kMean };

}  // namespace lockstep
