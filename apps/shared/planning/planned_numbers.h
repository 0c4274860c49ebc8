#pragma once

#include <cstdint>

#include "lockstep/apps/shared/precision/precision_kind.h"

namespace lockstep::apps {

/// The numbers with which a model computes.
enum class PlannedNumbers : uint8_t {
  kFloat32,
  kFloat64,
  kMixed,  ///< bfloat16 or float16 by autocast, with parameters in float32
};

/// Returns the numbers of a training in that precision.
PlannedNumbers planned_numbers(PrecisionKind precision);
/// Returns the bytes of an element of a parameter.
int64_t parameter_bytes(PlannedNumbers numbers);

}  // namespace lockstep::apps
