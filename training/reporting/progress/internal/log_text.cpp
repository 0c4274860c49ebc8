#include "lockstep/training/reporting/progress/internal/log_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr const char* kUtilization = "model_flop_utilization";

}  // namespace

std::string log_title(std::string name) {
  if (name == kUtilization) return "MFU";
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string log_value_text(const std::string& name, double value) {
  if (name == "data_wait" || name == kUtilization) return fmt::format("{:.1f} %", 100 * value);
  if (name == "learning_rate") return fmt::format("{:.3g}", value);
  return fmt::format("{:.4f}", value);
}

}  // namespace lockstep
