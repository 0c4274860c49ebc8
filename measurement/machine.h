#pragma once

#include <cstdint>
#include <string>

namespace lockstep::measurement {

/// The CPU's name and the number of cores this process may use.
std::string describe_machine();

/// Today, as 2026-01-31, in UTC.
std::string today();

/// The largest resident set of this process so far (Linux's VmHWM).
int64_t peak_memory_bytes();

}  // namespace lockstep::measurement
