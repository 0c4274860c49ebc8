#pragma once

#include <cstdint>

namespace lockstep {

/// The kind of gradient that the replicas together have for one parameter. Checkpoints hold these numbers.
enum class GradientKind : uint8_t { kNone = 0, kDense = 1, kSparse = 2 };

}  // namespace lockstep
