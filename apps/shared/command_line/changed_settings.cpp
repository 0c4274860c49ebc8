#include "lockstep/apps/shared/command_line/changed_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "lockstep/apps/shared/command_line/configuration_file.h"

namespace lockstep::apps {
namespace {

using nlohmann::json;

/// Returns the values of a configuration by the names of their flags, or null.
json values_in(const std::string& configuration) {
  const json root = json::parse(configuration, nullptr, /*allow_exceptions=*/false);
  return root.is_object() && root.contains("values") && root["values"].is_object() ? root["values"] : json();
}

json value_in(const json& values, const std::string& name) {
  const json& entry = values[name];
  return entry.is_object() ? entry.value("value", json()) : entry;
}

std::string text_of(const json& value) {
  if (value.is_null()) return "none";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::vector<std::string> pieces;
  for (const auto& piece : value) pieces.push_back(text_of(piece));
  return fmt::format("{}", fmt::join(pieces, ","));
}

}  // namespace

std::vector<std::string> changed_settings(const std::string& earlier, const std::vector<Setting>& settings,
                                          const FlagTable& table) {
  // Both as they are written, so that equal values are equal.
  const json then = values_in(earlier);
  const json now = values_in(configuration_json({.program = table.program, .values = settings}));
  std::vector<std::string> changes;
  for (const auto& setting : settings) {
    const Flag* flag = find_flag(table, setting.name);
    if (flag == nullptr || flag->role != FlagRole::kSetting || !then.contains(setting.name)) continue;
    const json before = value_in(then, setting.name), after = value_in(now, setting.name);
    if (before != after)
      changes.push_back(fmt::format("{} {} -> {}", setting.name, text_of(before), text_of(after)));
  }
  return changes;
}

std::string changed_settings_text(const std::vector<std::string>& changes) {
  if (changes.empty()) return "";
  return fmt::format("resumes with other settings than before: {}", fmt::join(changes, ", "));
}

}  // namespace lockstep::apps
