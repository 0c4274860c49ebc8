#pragma once

#include <string>

#include "lockstep/apps/inspect_run/run_summary.h"

namespace lockstep::apps {

/// Reads config.json into the summary. A missing file and damages are noted there.
void read_run_configuration(const std::string& path, RunSummary& summary);

/// Reads metrics.jsonl into the summary, likewise. A line that is cut off ends a file of a run that was
/// killed while it wrote, and is no damage.
void read_run_metrics(const std::string& path, RunSummary& summary);

}  // namespace lockstep::apps
