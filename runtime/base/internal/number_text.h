#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// Numbers for people to read: what is lost to rounding is lost.
///
/// `digits` significant ones, without zeros at the end: 0.9834, 12.3, 1.5e-5; NaN is nan. Below ten million
/// no digit before the point is left out: 123457.
std::string short_number(double value, int digits = 4);
/// `digits` after the point: 3.142.
std::string fixed_number(double value, int digits);
/// A share of one in percent, with a narrow space before the sign: 98.31 %; nan where it is none.
std::string percent_text(double share, int digits = 2);
/// With a narrow space before each three digits: 60 000.
std::string grouped_number(int64_t value);
/// 0.25 s, 12.3 s, 5 min 12 s, 2 h 05 min, 3 d 04 h; "unknown" for what is no duration.
std::string seconds_text(double seconds);
/// 512 B, 3.2 KiB, 13.5 MiB.
std::string bytes_text(uint64_t bytes);

}  // namespace lockstep
