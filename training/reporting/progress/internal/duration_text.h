#pragma once

#include <string>

namespace lockstep {

/// Formats seconds as on a clock: `00:07`, `12:34`, `1:02:03`, `2 days 01:00:00`; `--:--` for invalid
/// durations (negative, NaN or infinite).
std::string duration_text(double seconds);

}  // namespace lockstep
