#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// Returns the fewest digits that read back as the same number: 0.1, 1e-07; or "nan", "inf" and "-inf".
std::string exact_number(double value);

// The others make text for people to read; rounding loses precision.

/// Formats `value` with `digits` significant digits and no trailing zeros: 0.9834, 12.3, 1.5e-5; NaN is
/// "nan". Below ten million, all digits before the point are kept: 123457.
std::string short_number(double value, int digits = 4);
/// Formats `value` with `digits` digits after the point: 3.142.
std::string fixed_number(double value, int digits);
/// Formats a fraction of one as a percentage, with a narrow space before the sign: 98.31 %. Returns "nan" for
/// NaN.
std::string percent_text(double share, int digits = 2);
/// Groups digits in threes, separated by narrow spaces: 60 000.
std::string grouped_number(int64_t value);
/// Formats a duration: 0.25 s, 12.3 s, 5 min 12 s, 2 h 05 min, 3 d 04 h. Returns "unknown" if `seconds` is
/// negative, NaN or above 1e9.
std::string seconds_text(double seconds);
/// Formats a size: 512 B, 3.2 KiB, 13.5 MiB.
std::string bytes_text(uint64_t bytes);

}  // namespace lockstep
