#pragma once

#include <cstdint>
#include <string>

namespace lockstep::apps {

/// The range of whole numbers that a flag accepts.
struct IntegerRange {
  int64_t least = 1;
  int64_t most = INT64_MAX;
};

/// Parses a flag's value. Throws UsageError naming the flag, the range and the text unless it is a decimal
/// whole number within the range.
int64_t parse_integer(const std::string& flag, const std::string& text, const IntegerRange& range);

/// Like parse_integer(), for 0 to 2^64 - 1.
uint64_t parse_seed(const std::string& flag, const std::string& text);

/// Like parse_integer(), for a finite number above 0, such as 0.001 or 1e-3.
double parse_positive(const std::string& flag, const std::string& text);

/// Like parse_integer(), for a number in [0, 1).
double parse_fraction(const std::string& flag, const std::string& text);

/// Like parse_integer(), for a number in (0, 1).
double parse_factor(const std::string& flag, const std::string& text);

/// Like parse_integer(), for a finite number of 0 or more.
double parse_amount(const std::string& flag, const std::string& text);

}  // namespace lockstep::apps
