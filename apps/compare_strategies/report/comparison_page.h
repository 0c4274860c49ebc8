#pragma once

#include <string>

#include "lockstep/apps/compare_strategies/report/comparison_report.h"

namespace lockstep::apps {

/// The comparison as one HTML page that needs no other file: the advice, bars of images a second with their
/// intervals, the losses over the steps, and the table.
std::string comparison_page(const ComparisonReport& report);

}  // namespace lockstep::apps
