#pragma once

#include <cxxopts.hpp>

#include "lockstep/apps/shared/command_line/flag_table.h"

namespace lockstep::apps {

/// The table as cxxopts reads it. All values are texts, those of flags that take none booleans.
cxxopts::Options cxxopts_flags(const FlagTable& table);

}  // namespace lockstep::apps
