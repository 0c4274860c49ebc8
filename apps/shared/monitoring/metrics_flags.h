#pragma once

#include <vector>

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/apps/shared/command_line/setting_values.h"
#include "lockstep/apps/shared/monitoring/metrics_choice.h"

namespace lockstep::apps {

/// Returns the flags --metrics-port, --metrics-address, --mlflow-dir and --profile-input.
std::vector<Flag> metrics_flags();

/// Returns the values of these flags for a run's configuration.
settings::NamedValues metrics_values(const MetricsChoice& choice);

/// Sets the choice from a program's arguments. Throws UsageError naming the flag, the expected and the given
/// value.
void read_metrics(const Arguments& given, MetricsChoice& choice);

}  // namespace lockstep::apps
