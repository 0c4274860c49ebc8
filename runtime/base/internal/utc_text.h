#pragma once

#include <chrono>
#include <string>

namespace lockstep {

/// Formats a time in UTC as std::strftime() does: "%Y-%m-%d" gives 2026-01-31. The text may have at most 63
/// characters.
std::string utc_text(std::chrono::system_clock::time_point time, const char* format);

}  // namespace lockstep
