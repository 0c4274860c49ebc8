#pragma once

#include <string>

#include "lockstep/apps/inspect_run/run_summary.h"

namespace lockstep::apps {

/// Reads config.json into the summary, which also notes a missing file and any damage.
void read_run_configuration(const std::string& path, RunSummary& summary);

/// Reads metrics.jsonl into the summary in the same way. A truncated last line is not damage: the run was
/// killed while writing it.
void read_run_metrics(const std::string& path, RunSummary& summary);

}  // namespace lockstep::apps
