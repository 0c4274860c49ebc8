#include "lockstep/runtime/base/save_interval.h"

#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

constexpr double kMostSteps = 1e15;  // keeps a count exact as a double

bool is_unit(const std::string& text, const std::string& unit) {
  return text == unit || text == unit + "s";
}

}  // namespace

SaveInterval SaveInterval::parse(const std::string& text) {
  SaveInterval every;
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto [after, error] = std::from_chars(begin, end, every.count);
  std::string unit(after, end);
  if (unit.starts_with(' ')) unit.erase(0, 1);
  if (error == std::errc::invalid_argument) every.count = 1;
  if (is_unit(unit, "epoch")) {
    every.unit = SaveUnit::kEpochs;
  } else if (is_unit(unit, "step")) {
    every.unit = SaveUnit::kSteps;
  } else if (is_unit(unit, "minute")) {
    every.unit = SaveUnit::kMinutes;
  } else {
    unit.clear();
  }
  const bool is_whole = every.unit == SaveUnit::kMinutes || every.count == std::floor(every.count);
  if (unit.empty() || error == std::errc::result_out_of_range || !is_whole || !(every.count > 0) ||
      every.count > kMostSteps) {
    throw InvalidArgument("expected epoch, N epochs, N steps or N minutes, N being positive, but got '" +
                          text + "'");
  }
  return every;
}

std::string SaveInterval::str() const {
  const char* name = unit == SaveUnit::kEpochs ? "epoch" : unit == SaveUnit::kSteps ? "step" : "minute";
  if (count == 1) return name;
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), count).ptr;
  return std::string(digits.data(), end) + " " + name + "s";
}

}  // namespace lockstep
