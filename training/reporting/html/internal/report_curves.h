#pragma once

#include <string>
#include <vector>

#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep {

/// Returns figures of everything that was measured over epochs and over steps; a quantity without values has
/// none.
std::vector<std::string> report_curves(const RunRecord& record);

}  // namespace lockstep
