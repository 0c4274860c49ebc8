#include "lockstep/apps/inspect_data/histogram_figure.h"

#include <algorithm>
#include <cmath>

#include "lockstep/apps/inspect_data/value_texts.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/training/reporting/html/internal/plot_axis.h"
#include "lockstep/training/reporting/html/internal/svg_shapes.h"

namespace lockstep::apps {
namespace {

constexpr double kWidth = 440;
constexpr double kTop = 10;
constexpr double kBottom = 170;
constexpr double kRight = kWidth - 12;
constexpr double kBelow = 46;
constexpr double kBelowWithoutLabel = 26;
constexpr double kWidestBar = 56;

/// The bins on their axis, and how they are drawn.
struct HistogramFrame {
  const NumberBins* bins = nullptr;
  bool is_log = false;
  double shift = 0;  ///< so that bars of single integers stand over their numbers
  PlotAxis x;
  PlotAxis y;
  double left = 0;

  double x_of(double value) const { return left + (value - x.low) / (x.high - x.low) * (kRight - left); }
  double y_of(double count) const { return kBottom - (count - y.low) / (y.high - y.low) * (kBottom - kTop); }
  /// Returns the number at a place of the bins' axis.
  double number_at(double place) const {
    return is_log ? std::copysign(std::exp2(std::fabs(place)) - 1, place) : place;
  }
};

double place_of_number(double number) {
  return std::copysign(std::log2(1 + std::fabs(number)), number);
}

/// Returns an axis with zero and powers of ten, whose unit is that of NumberSummary::magnitudes.
PlotAxis magnitude_axis(double low, double high) {
  PlotAxis axis{.low = low, .high = high, .ticks = {}};
  constexpr int kMostPower = 308;
  std::vector<double> numbers{0};
  for (int power = -3; power <= kMostPower; ++power) {
    numbers.push_back(std::pow(10.0, power));
    numbers.push_back(-std::pow(10.0, power));
  }
  std::sort(numbers.begin(), numbers.end());
  for (const double number : numbers) {
    const double place = place_of_number(number);
    // Below 1, all numbers are near zero.
    const bool is_seen = number == 0 || std::fabs(number) >= 1 || high - low < 2;
    if (!is_seen || place < low || place > high) continue;
    constexpr double kMostGrouped = 1e5;
    std::string label = std::fabs(number) < kMostGrouped && std::fabs(number) >= 1
                            ? grouped_number(static_cast<int64_t>(number))
                            : short_number(number);
    if (label[0] == '-') label = "\u2212" + label.substr(1);
    axis.ticks.push_back({.value = place, .label = label});
  }
  return axis;
}

HistogramFrame frame_of(const HistogramPlot& plot) {
  HistogramFrame frame{.is_log = is_skewed(*plot.numbers)};
  frame.bins = frame.is_log ? &plot.numbers->magnitudes : &plot.numbers->bins;
  const bool has_single = plot.is_whole && !frame.is_log && frame.bins->width() == 1;
  frame.shift = has_single ? -0.5 : 0;
  const auto& counts = frame.bins->counts();
  const double low = frame.bins->low() + frame.shift;
  const double high = frame.bins->low(counts.size()) + frame.shift;
  const AxisOptions numbers{.numbers = has_single ? AxisNumbers::kWhole : AxisNumbers::kPlain,
                            .max_ticks = 5,
                            .ends_at_ticks = false};
  frame.x = frame.is_log ? magnitude_axis(low, high) : make_axis(low, high, numbers);
  frame.x.low = low;
  frame.x.high = high;
  const int64_t highest = *std::max_element(counts.begin(), counts.end());
  frame.y = make_axis(0, static_cast<double>(highest), {.numbers = AxisNumbers::kWhole, .max_ticks = 4});
  for (const AxisTick& tick : frame.y.ticks)
    frame.left = std::max(frame.left, text_width(tick.label, kPlotFontSize) + 8);
  return frame;
}

std::string label_of(const HistogramPlot& plot, const HistogramFrame& frame) {
  if (!frame.is_log) return plot.value_label;
  return plot.value_label.empty() ? "logarithmic" : plot.value_label + ", logarithmic";
}

std::string axis_shapes(const HistogramPlot& plot, const HistogramFrame& frame) {
  std::string shapes;
  for (const AxisTick& tick : frame.y.ticks) {
    const double y = frame.y_of(tick.value);
    shapes += svg_line({frame.left, y}, {kRight, y}, "grid");
    shapes += svg_text({frame.left - 6, y + 4.5}, tick.label, TextAnchor::kEnd);
  }
  double free_from = 0;
  for (const AxisTick& tick : frame.x.ticks) {
    if (tick.value < frame.x.low || tick.value > frame.x.high) continue;
    const double half = text_width(tick.label, kPlotFontSize) / 2;
    const double x = frame.x_of(tick.value);
    const double middle = std::min(x, kWidth - half);
    if (middle - half < free_from) continue;
    shapes += svg_line({x, kBottom}, {x, kBottom + 4}, "axis");
    shapes += svg_text({middle, kBottom + 18}, tick.label, TextAnchor::kMiddle);
    free_from = middle + half + 6;
  }
  const std::string label = label_of(plot, frame);
  if (label.empty()) return shapes;
  return shapes + svg_text({(frame.left + kRight) / 2, kBottom + 38}, label, TextAnchor::kMiddle, "label");
}

std::string bin_shapes(const HistogramPlot& plot, const HistogramFrame& frame) {
  std::string shapes;
  const auto& counts = frame.bins->counts();
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const double begin = frame.bins->low(i);
    const double end = frame.bins->low(i + 1);
    const double left = frame.x_of(begin + frame.shift);
    const double right = frame.x_of(end + frame.shift);
    // Rare numbers are seen, too.
    const double top = std::min(frame.y_of(static_cast<double>(counts[i])), kBottom - 1);
    const bool is_single = frame.shift != 0;
    const std::string range =
        is_single ? short_number(begin)
                  : short_number(frame.number_at(begin)) + " to " + short_number(frame.number_at(end));
    const double gap = std::max(right - left > 4 ? 1.0 : 0.0, is_single ? right - left - kWidestBar : 0.0);
    shapes += svg_rectangle({.x = left + (is_single ? gap / 2 : 0),
                             .y = top,
                             .width = right - left - gap,
                             .height = kBottom - top},
                            "bar", plot.title + ": " + range + ": " + grouped_number(counts[i]));
  }
  return shapes;
}

}  // namespace

std::string histogram_figure(const HistogramPlot& plot) {
  const HistogramFrame frame = frame_of(plot);
  const NumberSummary& numbers = *plot.numbers;
  return plot_figure({.caption = plot.title,
                      .summary = "Histogram of " + plot.title + ": " + grouped_number(numbers.count) +
                                 " numbers from " + short_number(numbers.least) + " to " +
                                 short_number(numbers.most) + ", " + short_number(numbers.mean()) +
                                 " on average",
                      .width = kWidth,
                      .height = kBottom + (label_of(plot, frame).empty() ? kBelowWithoutLabel : kBelow),
                      .shapes = axis_shapes(plot, frame) + bin_shapes(plot, frame) +
                                svg_line({frame.left, kBottom}, {kRight, kBottom}, "axis")});
}

}  // namespace lockstep::apps
