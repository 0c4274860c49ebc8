#pragma once

#include <fmt/format.h>

#include <string>

namespace lockstep::apps {

/// Returns a line of a printed configuration: the name, and the value in a column of its own. An empty name
/// continues the value of the line before.
inline std::string row(const std::string& name, const std::string& value) {
  return fmt::format("{:<17}{}\n", name, value);
}

}  // namespace lockstep::apps
