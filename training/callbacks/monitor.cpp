#include "lockstep/training/callbacks/monitor.h"

#include <algorithm>
#include <cmath>
#include <string_view>
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

constexpr std::string_view kValidation = "validation_";

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_validation(const std::vector<std::string>& names) {
  return contains(names, "validation_loss");
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// Returns Keras's name val_x as validation_x, and other names as they are.
std::string in_full(const std::string& name) {
  constexpr std::string_view kShort = "val_";
  return name.starts_with(kShort) ? std::string(kValidation) + name.substr(kShort.size()) : name;
}

}  // namespace

Monitor::Monitor(std::string who, MonitorOptions options)
    : who_(std::move(who)), options_(std::move(options)), larger_is_better_(is_larger_better(options_)) {
  if (!(options_.min_delta >= 0))
    throw InvalidArgument("[" + who_ + "] expected a min_delta of 0 or more, but got " +
                          std::to_string(options_.min_delta));
}

bool Monitor::is_known(const std::vector<std::string>& names) const {
  if (contains(names, options_.name)) return true;
  const std::string meant = in_full(options_.name);
  const bool is_of_missing_validation = !has_validation(names) && meant.starts_with(kValidation) &&
                                        contains(names, meant.substr(kValidation.size()));
  if (is_of_missing_validation || contains(names, meant)) refuse(names);
  return false;
}

void Monitor::refuse(const std::vector<std::string>& names) const {
  const std::string meant = in_full(options_.name);
  std::string text =
      "[" + who_ + "] expected one of " + joined(names) + " to monitor, but got '" + options_.name + "'";
  if (meant != options_.name) text += "; the validation's value is called '" + meant + "'";
  if (meant.starts_with(kValidation) && !has_validation(names))
    text += "; to validate after every epoch, set FitOptions::validation";
  throw InvalidArgument(text);
}

bool Monitor::improves(const Logs& logs) {
  const auto value = logs.find(options_.name);
  if (!value) {
    std::vector<std::string> names;
    for (const auto& [name, number] : logs) names.push_back(name);
    refuse(names);
  }
  if (std::isnan(*value)) return false;
  if (best_ && (larger_is_better_ ? *value - *best_ : *best_ - *value) <= options_.min_delta) return false;
  best_ = *value;
  return true;
}

}  // namespace lockstep
