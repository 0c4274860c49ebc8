#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/command_line/setting.h"

/// Values of a configuration, made of a program's options.
namespace lockstep::apps::settings {

/// Flags' names and values.
using NamedValues = std::vector<std::pair<std::string, SettingValue>>;

/// Returns `value`, or an empty setting if it has no meaning.
inline SettingValue where(bool has_meaning, SettingValue value) {
  return has_meaning ? std::move(value) : SettingValue{};
}

/// Returns a count, where 0 means that it was not given.
inline SettingValue count(int64_t value) {
  return where(value > 0, value);
}

inline SettingValue text(const std::string& value) {
  return where(!value.empty(), value);
}

inline SettingValue list(const std::vector<std::string>& values) {
  return where(!values.empty(), values);
}

/// Returns the groups of values one after another, each value with its origin; without an entry in `origins`,
/// it is a default.
inline std::vector<Setting> with_origins(const std::vector<NamedValues>& groups,
                                         const std::map<std::string, Origin>& origins) {
  std::vector<Setting> settings;
  for (const auto& group : groups) {
    for (const auto& [name, value] : group) {
      const auto origin = origins.find(name);
      settings.push_back({name, value, origin == origins.end() ? Origin{} : origin->second});
    }
  }
  return settings;
}

}  // namespace lockstep::apps::settings
