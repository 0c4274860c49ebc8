#pragma once

#include <string>

#include "lockstep/apps/shared/command_line/flag_table.h"

namespace lockstep::apps {

/// The name of --model for a model whose sizes are given by flags.
inline constexpr const char* kGptModel = "gpt";

/// Returns the flags of `plan`.
FlagTable plan_flags();

/// Returns the text that --help prints; `program` is the program as it was called.
std::string plan_help_text(const std::string& program = "");

}  // namespace lockstep::apps
