#include "lockstep/runtime/replicas/internal/usage_warnings.h"

#include <c10/util/Exception.h>

#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

constexpr const char* kVariable = "LOCKSTEP_WARNINGS";

}  // namespace

UsageWarnings::UsageWarnings(std::string strategy, const Environment& environment)
    : strategy_(std::move(strategy)) {
  const std::string value = environment(kVariable).value_or("on");
  if (value != "on" && value != "off") {
    throw InvalidArgument("[" + strategy_ + "] expected " + kVariable + " to be 'on' or 'off', but got '" +
                          value + "'");
  }
  for (auto& handled : was_handled_) handled = value == "off";
}

void UsageWarnings::warn(UsageMistake mistake, const std::string& text) {
  if (was_handled_[static_cast<size_t>(mistake)].exchange(true)) return;
  TORCH_WARN("[", strategy_, "] ", text, " (", kVariable, "=off silences these warnings.)");
}

}  // namespace lockstep
