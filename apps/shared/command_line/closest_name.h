#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::apps {

/// The one of `names` that somebody who typed `given` most likely meant: the fewest letters added, left out,
/// changed or swapped with their neighbour, upper and lower case alike. Nothing where all are too far off.
std::optional<std::string> closest_name(std::string_view given, const std::vector<std::string>& names);

/// " (did you mean NAME?)", or nothing.
std::string did_you_mean(std::string_view given, const std::vector<std::string>& names);

}  // namespace lockstep::apps
