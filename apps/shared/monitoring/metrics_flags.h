#pragma once

#include <vector>

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/apps/shared/monitoring/metrics_choice.h"

namespace lockstep::apps {

/// Returns the flags --metrics-port and --metrics-address.
std::vector<Flag> metrics_flags();

/// Sets the choice from a program's arguments. Throws UsageError naming the flag, the expected and the given
/// value.
void read_metrics(const Arguments& given, MetricsChoice& choice);

}  // namespace lockstep::apps
