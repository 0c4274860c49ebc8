#pragma once

#include <cstdint>
#include <string>

namespace lockstep::apps {

/// The whole numbers that a flag takes.
struct IntegerRange {
  int64_t least = 1;
  int64_t most = INT64_MAX;
};

/// Reads a flag's value. Throws UsageError naming the flag, the range and the text for anything but a decimal
/// whole number within the range.
int64_t parse_integer(const std::string& flag, const std::string& text, const IntegerRange& range);

/// The same for 0 to 2^64 - 1.
uint64_t parse_seed(const std::string& flag, const std::string& text);

/// The same for a finite number above 0, such as 0.001 or 1e-3.
double parse_positive(const std::string& flag, const std::string& text);

/// The same for a number from 0 up to, but not including, 1.
double parse_fraction(const std::string& flag, const std::string& text);

/// The same for a number above 0 and below 1.
double parse_factor(const std::string& flag, const std::string& text);

/// The same for a finite number of 0 or more.
double parse_amount(const std::string& flag, const std::string& text);

}  // namespace lockstep::apps
