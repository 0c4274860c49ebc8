#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/train_images/options/command_line.h"

namespace lockstep::apps {

using ArgumentList = std::vector<std::string>;

inline CommandLine parse(const ArgumentList& arguments) {
  return parse_command_line(arguments, {"default", "mirrored", "one_device"});
}

inline TrainOptions options_of(const ArgumentList& arguments) {
  return parse(arguments).options;
}

/// The error message for the refused arguments.
inline std::string refusal(const ArgumentList& arguments) {
  try {
    parse(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

}  // namespace lockstep::apps
