#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/apps/shared/command_line/origin.h"

namespace lockstep::apps {

/// The value of a flag; monostate if none was given or if other flags make it meaningless.
using SettingValue =
    std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, std::vector<std::string>>;

/// One value of a program's configuration.
struct Setting {
  std::string name;  ///< the flag's name, without dashes
  SettingValue value;
  Origin origin;

  bool operator==(const Setting&) const = default;
};

}  // namespace lockstep::apps
