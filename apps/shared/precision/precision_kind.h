#pragma once

#include <string>

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/measurement/gpu_peak.h"

namespace lockstep::apps {

enum class PrecisionKind { kFloat32, kIeee, kFloat64, kTf32, kBFloat16, kFloat16 };

/// Returns the spelling used in flags and printed configurations.
std::string precision_name(PrecisionKind precision);
/// Returns the name with what it means, for people.
std::string precision_text(PrecisionKind precision);

/// Returns the numbers that matrix products take.
measurement::MatrixNumbers matrix_numbers(PrecisionKind precision);

/// Returns the flag --precision.
Flag precision_flag();
/// Returns the flag's value, or `otherwise` if it was not given.
PrecisionKind read_precision(const Arguments& given, PrecisionKind otherwise);

}  // namespace lockstep::apps
