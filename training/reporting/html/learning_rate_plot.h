#pragma once

#include <string>

#include "lockstep/training/reporting/records/learning_rate_sweep.h"

namespace lockstep {

/// Returns a self-contained HTML page with the smoothed loss over the learning rate, on a logarithmic axis,
/// and the suggestion.
std::string learning_rate_html(const LearningRateSweep& sweep);

/// Writes the page to `path`, replacing any file there. Throws std::system_error naming `path`.
void write_learning_rate_plot(const LearningRateSweep& sweep, const std::string& path);

}  // namespace lockstep
