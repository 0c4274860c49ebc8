#include "lockstep/apps/shared/command_line/number_argument.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

/// Returns the number if it takes up the whole text.
template <typename Number>
std::optional<Number> read(const std::string& text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

[[noreturn]] void refuse(const std::string& flag, const std::string& expected, const std::string& text) {
  throw UsageError(fmt::format("{}: expected {}, but got '{}'", flag, expected, text));
}

}  // namespace

int64_t parse_integer(const std::string& flag, const std::string& text, const IntegerRange& range) {
  const auto value = read<int64_t>(text);
  if (value && *value >= range.least && *value <= range.most) return *value;
  refuse(flag,
         range.most == INT64_MAX ? fmt::format("a whole number of {} or more", range.least)
                                 : fmt::format("a whole number from {} to {}", range.least, range.most),
         text);
}

uint64_t parse_seed(const std::string& flag, const std::string& text) {
  const auto value = read<uint64_t>(text);
  if (!value) refuse(flag, fmt::format("a whole number from 0 to {}", UINT64_MAX), text);
  return *value;
}

double parse_positive(const std::string& flag, const std::string& text) {
  const auto value = read<double>(text);
  if (!value || !std::isfinite(*value) || *value <= 0) refuse(flag, "a number above 0", text);
  return *value;
}

double parse_fraction(const std::string& flag, const std::string& text) {
  const auto value = read<double>(text);
  if (!value || !(*value >= 0 && *value < 1)) refuse(flag, "a number from 0 to below 1", text);
  return *value;
}

double parse_factor(const std::string& flag, const std::string& text) {
  const auto value = read<double>(text);
  if (!value || !(*value > 0 && *value < 1)) refuse(flag, "a number above 0 and below 1", text);
  return *value;
}

double parse_amount(const std::string& flag, const std::string& text) {
  const auto value = read<double>(text);
  if (!value || !std::isfinite(*value) || *value < 0) refuse(flag, "a number of 0 or more", text);
  return *value;
}

}  // namespace lockstep::apps
