#pragma once

#include <string>

namespace lockstep::apps {

// Each throws UsageError naming the flag, the expected form and the text, unless it is a number above 0 with
// one of the units.

/// Reads bytes: 80GiB, 512MiB, 24GB, 1e9.
double parse_bytes(const std::string& flag, const std::string& text);
/// Reads bytes per second: 400Gbit/s, 3.35TB/s.
double parse_byte_rate(const std::string& flag, const std::string& text);
/// Reads operations per second: 400T, 67TFLOP/s, 1e12.
double parse_flop_rate(const std::string& flag, const std::string& text);
/// Reads a duration in seconds: 5us, 1ms, 0.1s.
double parse_seconds(const std::string& flag, const std::string& text);

/// Returns such as "79.1 GiB".
std::string gibibytes_text(double bytes);

}  // namespace lockstep::apps
