#pragma once

#include <cxxopts.hpp>

#include "lockstep/apps/shared/command_line/flag_table.h"

namespace lockstep::apps {

/// Converts the table for cxxopts. All values are texts, except that flags without a value are booleans.
cxxopts::Options cxxopts_flags(const FlagTable& table);

}  // namespace lockstep::apps
