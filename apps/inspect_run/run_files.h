#pragma once

#include <cstddef>
#include <functional>

#include "lockstep/apps/inspect_run/run_summary.h"
#include "lockstep/runtime/base/files/internal/regular_file.h"

namespace lockstep::apps {

/// Reads config.json into the summary, which also notes any damage.
void read_run_configuration(const RegularFile& file, RunSummary& summary);

/// Reads metrics.jsonl into the summary in the same way, line by line. A truncated last line is not damage:
/// the run was killed while writing it.
void read_run_metrics(const RegularFile& file, RunSummary& summary);

/// Calls `act` with each of the first `count` epochs in metrics.jsonl, and ignores damage.
void read_epochs(const RegularFile& file, size_t count, const std::function<void(MetricRow)>& act);

}  // namespace lockstep::apps
