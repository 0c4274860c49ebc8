#pragma once

#include <string>

namespace lockstep {

/// Seconds as a clock shows them: `00:07`, `12:34`, `1:02:03`, `2 days 01:00:00`; `--:--` for anything that
/// is no duration (negative, NaN or infinite).
std::string duration_text(double seconds);

}  // namespace lockstep
