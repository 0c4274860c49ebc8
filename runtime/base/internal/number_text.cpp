#include "lockstep/runtime/base/internal/number_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace lockstep {
namespace {

constexpr const char* kNarrowSpace = "\u202F";

std::string formatted(double value, std::chars_format format, int digits) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 400> text{};  // the largest double has 309 digits before its point
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, format, std::clamp(digits, 0, 40)).ptr;
  return {text.data(), end};
}

std::string two_digits(int64_t value) {
  return (value < 10 ? "0" : "") + std::to_string(value);
}

}  // namespace

std::string exact_number(double value) {
  if (std::isnan(value)) return "nan";  // without a sign
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string short_number(double value, int digits) {
  constexpr double kLargestPlain = 1e7;
  const double size = std::abs(value);
  if (size < kLargestPlain && size >= std::pow(10, digits)) return fixed_number(value, 0);
  std::string text = formatted(value, std::chars_format::general, digits);
  // 2e-05 becomes 2e-5, 3e+08 becomes 3e8
  const size_t exponent = text.find('e');
  if (exponent == std::string::npos) return text;
  const bool is_negative = text[exponent + 1] == '-';
  const size_t first_digit = text.find_first_not_of("+-0", exponent + 1);
  return text.substr(0, exponent) + (is_negative ? "e-" : "e") + text.substr(first_digit);
}

std::string fixed_number(double value, int digits) {
  return formatted(value, std::chars_format::fixed, digits);
}

std::string percent_text(double share, int digits) {
  return fixed_number(share * 100, digits) + (std::isfinite(share) ? std::string(kNarrowSpace) + "%" : "");
}

std::string grouped_number(int64_t value) {
  std::string text = std::to_string(value);
  const auto first_digit = static_cast<std::ptrdiff_t>(value < 0 ? 1 : 0);
  for (auto place = static_cast<std::ptrdiff_t>(text.size()) - 3; place > first_digit; place -= 3) {
    text.insert(static_cast<size_t>(place), kNarrowSpace);
  }
  return text;
}

std::string seconds_text(double seconds) {
  constexpr double kLongest = 1e9;
  constexpr double kMinute = 60;
  if (!(seconds >= 0) || seconds > kLongest) return "unknown";
  if (seconds < kMinute - 0.5) {
    return seconds < 9.995 ? fixed_number(seconds, 2) + " s" : fixed_number(seconds, 1) + " s";
  }
  const int64_t whole = std::llround(seconds);
  const int64_t minutes = whole / 60;
  const int64_t hours = minutes / 60;
  const int64_t days = hours / 24;
  if (hours == 0) return std::to_string(minutes) + " min " + two_digits(whole % 60) + " s";
  if (days == 0) return std::to_string(hours) + " h " + two_digits(minutes % 60) + " min";
  return std::to_string(days) + " d " + two_digits(hours % 24) + " h";
}

std::string bytes_text(uint64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {" KiB", " MiB", " GiB", " TiB"};
  constexpr double kStep = 1024;
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / kStep;
  size_t unit = 0;
  for (; value >= kStep && unit + 1 < kUnits.size(); ++unit) value /= kStep;
  return fixed_number(value, 1) + kUnits[unit];
}

}  // namespace lockstep
