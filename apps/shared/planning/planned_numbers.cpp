#include "lockstep/apps/shared/planning/planned_numbers.h"

namespace lockstep::apps {

PlannedNumbers planned_numbers(PrecisionKind precision) {
  switch (precision) {
    case PrecisionKind::kBFloat16:
    case PrecisionKind::kFloat16:
      return PlannedNumbers::kMixed;
    case PrecisionKind::kFloat64:
      return PlannedNumbers::kFloat64;
    case PrecisionKind::kFloat32:
    case PrecisionKind::kIeee:
    case PrecisionKind::kTf32:
      break;
  }
  return PlannedNumbers::kFloat32;
}

int64_t parameter_bytes(PlannedNumbers numbers) {
  return numbers == PlannedNumbers::kFloat64 ? 8 : 4;
}

}  // namespace lockstep::apps
