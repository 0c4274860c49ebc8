#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/apps/shared/command_line/origin.h"

namespace lockstep::apps {

/// A value as a flag takes it; monostate: none was given, or it means nothing beside the others.
using SettingValue =
    std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, std::vector<std::string>>;

/// One value of a program's configuration.
struct Setting {
  std::string name;  ///< as the flag, without dashes
  SettingValue value;
  Origin origin;

  bool operator==(const Setting&) const = default;
};

}  // namespace lockstep::apps
