#pragma once

#include <string>
#include <vector>

#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep {

/// The figures of all that was measured over epochs and over steps; what never was has none.
std::vector<std::string> report_curves(const RunRecord& record);

}  // namespace lockstep
