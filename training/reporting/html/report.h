#pragma once

#include <string>

#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep {

/// A run as one HTML page that needs nothing else, see HtmlPage: curves, the confusion matrix, misclassified
/// images, the epochs and the configuration, as far as the record has them.
std::string report_html(const RunRecord& record);

/// Writes it to `path`, whether or not there is a file: readers see the old page or the new one, whole.
/// Throws std::system_error naming `path`, which then is as before.
void write_report(const RunRecord& record, const std::string& path);

}  // namespace lockstep
