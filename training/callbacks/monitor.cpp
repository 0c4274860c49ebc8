#include "lockstep/training/callbacks/monitor.h"

#include <cmath>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

bool is_larger_better(const MonitorOptions& options) {
  if (options.mode != MonitorMode::kAuto) return options.mode == MonitorMode::kMax;
  for (const char* part : {"accuracy", "auc", "precision", "recall"}) {
    if (options.name.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

Monitor::Monitor(std::string who, MonitorOptions options)
    : who_(std::move(who)), options_(std::move(options)), larger_is_better_(is_larger_better(options_)) {
  if (!(options_.min_delta >= 0))
    throw InvalidArgument("[" + who_ + "] expected a min_delta of 0 or more, but got " +
                          std::to_string(options_.min_delta));
}

bool Monitor::improves(const Logs& logs) {
  const auto value = logs.find(options_.name);
  if (!value) {
    std::string names;
    for (const auto& [name, number] : logs) names += (names.empty() ? "" : ", ") + name;
    throw InvalidArgument("[" + who_ + "] expected one of " + names + " to monitor, but got '" +
                          options_.name + "'");
  }
  if (std::isnan(*value)) return false;
  if (best_ && (larger_is_better_ ? *value - *best_ : *best_ - *value) <= options_.min_delta) return false;
  best_ = *value;
  return true;
}

}  // namespace lockstep
