#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"

namespace lockstep::apps {

/// Whether and where a program serves metrics to Prometheus.
struct MetricsChoice {
  int64_t metrics_port = -1;  ///< -1: none; 0: the system chooses
  std::string metrics_address = "127.0.0.1";

  bool operator==(const MetricsChoice&) const = default;
};

/// Returns the flags --metrics-port and --metrics-address.
std::vector<Flag> metrics_flags();

/// Sets the choice from a program's arguments. Throws UsageError naming the flag, the expected and the given
/// value.
void read_metrics(const Arguments& given, MetricsChoice& choice);

}  // namespace lockstep::apps
