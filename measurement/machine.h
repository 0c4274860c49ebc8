#pragma once

#include <cstdint>
#include <string>

namespace lockstep::measurement {

/// Returns the CPU's name and the number of cores this process may use.
std::string describe_machine();

/// Returns today's date in UTC, such as 2026-01-31.
std::string today();

/// Returns the peak resident set size of this process in bytes (Linux's VmHWM).
int64_t peak_memory_bytes();

/// Returns the bytes of mapped files, such as libraries' code, that are resident now (Linux's RssFile).
int64_t mapped_file_bytes();

}  // namespace lockstep::measurement
