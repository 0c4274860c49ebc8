#pragma once

#include "lockstep/apps/train_mnist/data/data_location.h"
#include "lockstep/apps/train_mnist/options/command_line.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep::apps {

/// Puts into the options what `auto` turned out to mean, so that a run repeated by them does the same: the
/// data that was found, with the variable that named it as its origin, and multi_worker where the environment
/// gives a cluster, with the launcher's variable as its origin.
void decide_values(CommandLine& line, const DataLocation& location, const Strategy& strategy);

}  // namespace lockstep::apps
