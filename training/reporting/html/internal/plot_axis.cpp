#include "lockstep/training/reporting/html/internal/plot_axis.h"

#include <algorithm>
#include <cmath>

#include "lockstep/runtime/base/internal/number_text.h"

namespace lockstep {
namespace {

/// Returns the smallest of 1, 2, 5 times a power of ten that is not below `least`.
double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

/// Returns the number of decimals that tell multiples of `step` apart.
int digits_of_step(double step) {
  return std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
}

/// Formats a value with the digits that tell multiples of `step` apart.
std::string scientific_text(double value, double step) {
  const auto power = [](double number) { return std::floor(std::log10(std::abs(number)) + 1e-9); };
  return short_number(value, 1 + std::max(0, static_cast<int>(power(value) - power(step))));
}

std::string tick_label(double value, double step, double largest, AxisNumbers numbers) {
  constexpr double kSmallestPlain = 1e-3;
  constexpr double kLargestPlain = 1e7;
  constexpr double kLargestGrouped = 1e9;
  if (std::abs(value) < step / 2) value = 0;  // a rounding error
  if (numbers == AxisNumbers::kPowersOfTen) return "1e" + std::to_string(std::llround(value));
  if (numbers == AxisNumbers::kPercent)
    return percent_text(value, value == 0 ? 0 : digits_of_step(step * 100));
  std::string text;
  if (value == 0) {
    text = "0";
  } else if (step >= 1 && largest < kLargestGrouped) {
    text = grouped_number(std::llround(value));
  } else if (largest >= kSmallestPlain && largest < kLargestPlain) {
    text = fixed_number(value, digits_of_step(step));
  } else {
    text = scientific_text(value, step);
  }
  return text[0] == '-' ? "\u2212" + text.substr(1) : text;
}

/// Beyond these bounds, computing the ticks would overflow or underflow.
double with_room_for_ticks(double value) {
  constexpr double kLargest = 1e300;
  constexpr double kSmallest = 1e-290;
  return std::abs(value) < kSmallest ? 0 : std::clamp(value, -kLargest, kLargest);
}

}  // namespace

PlotAxis make_axis(double low, double high, const AxisOptions& options) {
  const bool is_whole =
      options.numbers == AxisNumbers::kWhole || options.numbers == AxisNumbers::kPowersOfTen;
  low = with_room_for_ticks(low);
  high = with_room_for_ticks(high);
  if (!(high - low > 1e-9 * std::max(std::abs(low), std::abs(high)))) {
    const double room = is_whole ? 1 : low == 0 ? 1 : std::abs(low) * 0.1;
    low -= room;
    high += room;
  }
  const auto num_steps = static_cast<double>(std::max<int64_t>(1, options.max_ticks - 1));
  double step = round_step((high - low) / num_steps);
  if (is_whole) step = std::max(step, 1.0);
  PlotAxis axis{.low = low, .high = high};
  double first = std::ceil(low / step - 1e-6);
  double last = std::floor(high / step + 1e-6);
  if (options.ends_at_ticks) {
    first = std::floor(low / step + 1e-6);
    last = std::ceil(high / step - 1e-6);
    axis.low = first * step;
    axis.high = last * step;
  }
  const double largest = std::max(std::abs(axis.low), std::abs(axis.high));
  const auto num_ticks = static_cast<int64_t>(last - first) + 1;
  for (int64_t tick = 0; tick < num_ticks; ++tick) {
    const double value = (first + static_cast<double>(tick)) * step;
    axis.ticks.push_back({.value = value, .label = tick_label(value, step, largest, options.numbers)});
  }
  return axis;
}

}  // namespace lockstep
