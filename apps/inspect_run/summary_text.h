#pragma once

#include <cstdint>
#include <string>

#include "lockstep/apps/inspect_run/run_summary.h"

namespace lockstep::apps {

/// Returns the summary as plain text for a terminal, ending with a newline. It contains no control
/// characters, whatever the files hold. Lists the last `num_epochs` epochs.
std::string summary_text(const RunSummary& summary, int64_t num_epochs);

/// Returns the summary as JSON, with every epoch; NaN and infinities are the texts "nan", "inf" and "-inf".
///
/// {"format_version": 1, "folder", "status", "reason", "owner", "program", "version",
///  "configuration": [{"name", "value", "origin"}], "planned_epochs", "epochs": [{"epoch", "loss", ...}],
///  "best_epoch": {"epoch", "metric", "value"}, "steps_logged", "totals": {"epochs", "steps", ...},
///  "checkpoints": [{"name", "bytes"}], "event_files": [{"name", "bytes"}], "report_bytes",
///  "missing": [names], "damages": [texts]}; unknown values are null.
std::string summary_json(const RunSummary& summary);

}  // namespace lockstep::apps
