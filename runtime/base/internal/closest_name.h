#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns the one of `names` closest to `given`, ignoring case: the one with the fewest letters added, left
/// out, changed or swapped with a neighbour. Returns nullopt if all are too far off.
std::optional<std::string> closest_name(std::string_view given, const std::vector<std::string>& names);

/// Returns " (did you mean NAME?)", or an empty string.
std::string did_you_mean(std::string_view given, const std::vector<std::string>& names);

}  // namespace lockstep
