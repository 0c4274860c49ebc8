#pragma once

#include <map>
#include <string>
#include <utility>

#include "lockstep/runtime/cluster/environment.h"

namespace lockstep {

using Variables = std::map<std::string, std::string>;

/// An environment with `variables` only.
inline Environment environment_of(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

/// `variables` with some replaced or added.
inline Variables changed(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

inline Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

}  // namespace lockstep
