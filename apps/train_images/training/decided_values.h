#pragma once

#include "lockstep/apps/train_images/data/data_location.h"
#include "lockstep/apps/train_images/options/command_line.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep::apps {

/// Replaces `auto` in the options by its resolved values, so that a run repeated with them does the same: the
/// data that was found (its origin is the variable that named it, if any), and multi_worker if the
/// environment describes a cluster (its origin is the launcher's variable).
void decide_values(CommandLine& line, const DataLocation& location, const Strategy& strategy);

}  // namespace lockstep::apps
