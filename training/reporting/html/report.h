#pragma once

#include <string>

#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep {

/// Returns a run as a self-contained HTML page, see HtmlPage: curves, the confusion matrix, misclassified
/// images, the epochs and the configuration, as far as the record has them.
std::string report_html(const RunRecord& record);

/// Writes the page to `path`, replacing any file there. Readers see the whole old page or the whole new one.
/// Throws std::system_error naming `path`, which is then unchanged.
void write_report(const RunRecord& record, const std::string& path);

}  // namespace lockstep
