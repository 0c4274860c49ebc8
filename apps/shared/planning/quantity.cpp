#include "lockstep/apps/shared/planning/quantity.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

using Units = std::vector<std::pair<std::string, double>>;

constexpr double kKibi = 1024;

const Units& prefixes() {
  static const Units decimal{{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}};
  return decimal;
}

double parse_quantity(const std::string& flag, const std::string& text, const Units& units,
                      const std::string& expected) {
  const char* begin = text.c_str();
  char* end = nullptr;
  const double number = std::strtod(begin, &end);
  const std::string unit(end);
  const bool is_number = end != begin && std::isfinite(number) && number > 0;
  for (const auto& [name, factor] : units)
    if (is_number && unit == name) return number * factor;
  throw UsageError(fmt::format("--{}: expected {}, but got '{}'", flag, expected, text));
}

}  // namespace

double parse_bytes(const std::string& flag, const std::string& text) {
  Units units;
  for (const auto& [prefix, factor] : prefixes()) units.emplace_back(prefix + "B", factor);
  units.emplace_back("", 1);
  double factor = 1;
  for (const std::string prefix : {"K", "M", "G", "T"}) units.emplace_back(prefix + "iB", factor *= kKibi);
  return parse_quantity(flag, text, units, "bytes such as 80GiB");
}

double parse_byte_rate(const std::string& flag, const std::string& text) {
  Units units;
  constexpr double kBits = 8;
  for (const auto& [prefix, factor] : prefixes()) {
    units.emplace_back(prefix + "B/s", factor);
    units.emplace_back(prefix + "bit/s", factor / kBits);
  }
  return parse_quantity(flag, text, units, "a rate such as 400Gbit/s or 3.35TB/s");
}

double parse_flop_rate(const std::string& flag, const std::string& text) {
  Units units;
  for (const auto& [prefix, factor] : prefixes()) {
    units.emplace_back(prefix, factor);
    units.emplace_back(prefix + "FLOP/s", factor);
  }
  return parse_quantity(flag, text, units, "operations per second such as 400TFLOP/s");
}

double parse_seconds(const std::string& flag, const std::string& text) {
  return parse_quantity(flag, text, {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}, "a time such as 5us");
}

std::string gibibytes_text(double bytes) {
  const double gibibytes = bytes / (kKibi * kKibi * kKibi);
  if (gibibytes < 1) return fmt::format("{:.3g} MiB", bytes / (kKibi * kKibi));
  return gibibytes < 10 ? fmt::format("{:.2f} GiB", gibibytes) : fmt::format("{:.1f} GiB", gibibytes);
}

}  // namespace lockstep::apps
