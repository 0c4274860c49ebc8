#include "lockstep/apps/shared/precision/precision_choice.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {

c10::ScalarType autocast_dtype(PrecisionKind precision) {
  switch (precision) {
    case PrecisionKind::kBFloat16:
      return c10::ScalarType::BFloat16;
    case PrecisionKind::kFloat16:
      return c10::ScalarType::Half;
    case PrecisionKind::kFloat32:
    case PrecisionKind::kIeee:
    case PrecisionKind::kFloat64:
    case PrecisionKind::kTf32:
      break;
  }
  return c10::ScalarType::Float;
}

Tf32Use tf32_use(PrecisionKind precision) {
  if (precision == PrecisionKind::kIeee) return Tf32Use::kNone;
  return precision == PrecisionKind::kTf32 ? Tf32Use::kAll : Tf32Use::kConvolutions;
}

c10::ScalarType parameter_dtype(PrecisionKind precision) {
  return precision == PrecisionKind::kFloat64 ? c10::ScalarType::Double : c10::ScalarType::Float;
}

bool needs_loss_scaling(PrecisionKind precision) {
  return precision == PrecisionKind::kFloat16;
}

void check_precision(PrecisionKind precision, const std::vector<LogicalDevice>& devices) {
  if (precision != PrecisionKind::kTf32) return;
  for (const auto& device : devices) {
    if (device.is_cuda()) continue;
    throw UsageError(c10::str("--precision tf32: expected GPUs only, which alone have TF32, but got ",
                              device.str(), "; bfloat16 is for CPUs, too"));
  }
}

bool measures_convolutions(bool is_asked_for, const std::vector<LogicalDevice>& devices) {
  return is_asked_for && std::all_of(devices.begin(), devices.end(), [&](const LogicalDevice& device) {
           return !device.is_cuda() || device.index == devices[0].index;
         });
}

void check_cuda_graph(const std::vector<LogicalDevice>& devices) {
  for (const auto& device : devices) {
    if (device.is_cuda()) continue;
    throw UsageError(c10::str("--cuda-graph: expected GPUs only, which alone have graphs, but got ",
                              device.str(), "; --devices names them"));
  }
}

}  // namespace lockstep::apps
