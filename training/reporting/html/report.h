#pragma once

#include <string>

#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep {

/// Returns a run as a self-contained HTML page, see HtmlPage: how it ended, when and where it was started,
/// curves, reference losses, sample texts, the confusion matrix, misclassified images, the epochs, memory and
/// the configuration. Leaves out whatever the record does not have.
std::string report_html(const RunRecord& record);

/// Writes the page to `path`, replacing any file there. Readers see the whole old page or the whole new one.
/// Throws std::system_error naming `path`, which is then unchanged.
void write_report(const RunRecord& record, const std::string& path);

}  // namespace lockstep
