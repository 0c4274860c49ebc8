#pragma once

#include <string>

#include "lockstep/apps/compare_strategies/report/comparison_report.h"

namespace lockstep::apps {

/// Returns the comparison as one self-contained HTML page: the advice, bars of the speeds with their
/// intervals, the losses over the steps, and the table.
std::string comparison_page(const ComparisonReport& report);

}  // namespace lockstep::apps
