#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "lockstep/apps/inspect_run/run_summary.h"

namespace lockstep::apps {

/// Returns the summary as plain text for a terminal, ending with a newline. It contains no control
/// characters, whatever the files hold. Lists the epochs whose rows the summary keeps.
std::string summary_text(const RunSummary& summary);

/// Calls its argument with each epoch of a run, in order.
using EpochSource = std::function<void(const std::function<void(MetricRow)>&)>;

/// Writes the summary as JSON in ASCII, with every epoch that `epochs` has; NaN and infinities are the texts
/// "nan", "inf" and "-inf". Only one epoch at a time is in memory.
///
/// {"format_version": 1, "folder", "status", "reason", "owner", "program", "version",
///  "start": {"time", "hosts", ...}, "configuration": [{"name", "value", "origin"}],
///  "examples": images, rows or tokens, "planned_epochs", "epochs": [{"epoch", "loss", ...}],
///  "best_epoch": {"epoch", "metric", "value"}, "steps_logged", "totals": {"epochs", "steps", ...},
///  "checkpoints": [{"name", "bytes"}], "event_files": [{"name", "bytes"}], "report_bytes",
///  "missing": [names], "damages": [texts]}; unknown values are null. For a run of train_gpt, the names of
///  its
/// metrics have `tokens` in place of `images`.
void write_summary_json(std::ostream& out, const RunSummary& summary, const EpochSource& epochs);

}  // namespace lockstep::apps
