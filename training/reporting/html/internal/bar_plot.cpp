#include "lockstep/training/reporting/html/internal/bar_plot.h"

#include <algorithm>
#include <cmath>

#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/runtime/base/internal/utf8_text.h"
#include "lockstep/training/reporting/html/internal/html_text.h"
#include "lockstep/training/reporting/html/internal/svg_shapes.h"

namespace lockstep {
namespace {

constexpr double kBarsWidth = 440;
constexpr double kBarsTop = 6;
constexpr double kRow = 34;
constexpr double kBarHeight = 18;
constexpr double kBarsBelow = 44;
constexpr size_t kLongestName = 22;

/// Position of the bars and scale of their lengths.
struct BarFrame {
  PlotAxis axis;
  double left = 0;
  double width = 0;
  double bottom = 0;

  double place(double value) const { return left + (value - axis.low) / (axis.high - axis.low) * width; }
};

bool has_bar(const PlotBar& bar) {
  return bar.note.empty() && std::isfinite(bar.value);
}

bool has_interval(const PlotBar& bar) {
  return has_bar(bar) && bar.interval && std::isfinite(bar.interval->first) &&
         std::isfinite(bar.interval->second);
}

std::string bar_number(double value, AxisNumbers numbers) {
  if (numbers == AxisNumbers::kPercent) return percent_text(value, 1);
  constexpr double kGrouped = 10000;
  if (std::abs(value) >= kGrouped && std::abs(value) < 1e12) return grouped_number(std::llround(value));
  return short_number(value);
}

std::string bar_text(const PlotBar& bar, AxisNumbers numbers) {
  return bar.note.empty() ? bar_number(bar.value, numbers) : bar.note;
}

std::string bar_tip(const PlotBar& bar, AxisNumbers numbers) {
  std::string tip = bar.name + ": " + (bar.note.empty() ? bar_number(bar.value, numbers) : bar.note);
  if (has_interval(bar)) {
    tip += " (" + bar_number(bar.interval->first, numbers) + " to " +
           bar_number(bar.interval->second, numbers) + ")";
  }
  return tip;
}

BarFrame make_bar_frame(const BarPlot& plot) {
  double low = 0;
  double high = plot.reference.value_or(0);
  double name_width = 0;
  double text_room = 0;
  for (const auto& bar : plot.bars) {
    name_width =
        std::max(name_width, text_width(shortened_in_the_middle(bar.name, kLongestName), kPlotFontSize));
    if (!has_bar(bar)) continue;
    text_room = std::max(text_room, text_width(bar_text(bar, plot.numbers), kPlotFontSize));
    low = std::min(low, bar.value);
    high = std::max(high, bar.value);
    if (has_interval(bar)) {
      low = std::min(low, bar.interval->first);
      high = std::max(high, bar.interval->second);
    }
  }
  BarFrame frame;
  frame.axis = make_axis(low, low == high ? low + 1 : high,
                         {.numbers = plot.numbers, .max_ticks = 5, .ends_at_ticks = false});
  frame.left = name_width + 10;
  frame.width = kBarsWidth - frame.left - text_room - 14;
  frame.bottom = kBarsTop + kRow * static_cast<double>(plot.bars.size());
  return frame;
}

std::string bar_axis_shapes(const BarPlot& plot, const BarFrame& frame) {
  std::string shapes;
  double free_from = -1;
  for (const auto& tick : frame.axis.ticks) {
    const double x = frame.place(tick.value);
    const double half = text_width(tick.label, kPlotFontSize) / 2;
    shapes += svg_line({x, kBarsTop}, {x, frame.bottom}, "grid");
    if (x - half < free_from) continue;
    shapes += svg_text({x, frame.bottom + 18}, tick.label, TextAnchor::kMiddle);
    free_from = x + half + 6;
  }
  const double middle = frame.left + frame.width / 2;
  const double half = text_width(plot.value_label, kPlotFontSize) / 2;
  const double x =
      std::clamp(middle, std::min(half, kBarsWidth / 2), std::max(kBarsWidth - half, kBarsWidth / 2));
  return shapes + svg_text({x, frame.bottom + 38}, plot.value_label, TextAnchor::kMiddle, "label");
}

std::string bar_shapes(const BarPlot& plot, const BarFrame& frame, size_t index) {
  const PlotBar& bar = plot.bars[index];
  const double middle = kBarsTop + kRow * (static_cast<double>(index) + 0.5);
  const std::string name = "<g><title>" + escape_html(bar_tip(bar, plot.numbers)) + "</title>" +
                           svg_text({frame.left - 8, middle + 4.5},
                                    shortened_in_the_middle(bar.name, kLongestName), TextAnchor::kEnd);
  const double zero = frame.place(0);
  if (!has_bar(bar)) {
    const auto room = static_cast<size_t>((kBarsWidth - zero - 6) / text_width("n", kPlotFontSize));
    return name +
           svg_text({zero + 6, middle + 4.5}, shortened(bar_text(bar, plot.numbers), room),
                    TextAnchor::kStart, "label") +
           "</g>\n";
  }
  const double end = frame.place(bar.value);
  std::string shapes = name + svg_rectangle({.x = std::min(zero, end),
                                             .y = middle - kBarHeight / 2,
                                             .width = std::abs(end - zero),
                                             .height = kBarHeight},
                                            "bar");
  double right = std::max(zero, end);
  if (has_interval(bar)) {
    const double from = frame.place(bar.interval->first);
    const double to = frame.place(bar.interval->second);
    shapes += svg_line({from, middle}, {to, middle}, "interval");
    for (const double x : {from, to}) shapes += svg_line({x, middle - 5}, {x, middle + 5}, "interval");
    right = std::max(right, to);
  }
  return shapes +
         svg_text({right + 8, middle + 4.5}, bar_text(bar, plot.numbers), TextAnchor::kStart, "value") +
         "</g>\n";
}

}  // namespace

std::string bar_plot_figure(const BarPlot& plot) {
  const BarFrame frame = make_bar_frame(plot);
  std::string shapes = bar_axis_shapes(plot, frame);
  std::string summary = plot.title;
  for (size_t index = 0; index < plot.bars.size(); ++index) {
    shapes += bar_shapes(plot, frame, index);
    summary += "; " + bar_tip(plot.bars[index], plot.numbers);
  }
  const double zero = frame.place(0);
  shapes += svg_line({zero, kBarsTop}, {zero, frame.bottom}, "axis");
  if (plot.reference && std::isfinite(*plot.reference)) {
    const double x = frame.place(*plot.reference);
    shapes += svg_line({x, kBarsTop}, {x, frame.bottom}, "reference");
  }
  return plot_figure({.caption = plot.title,
                      .summary = summary,
                      .width = kBarsWidth,
                      .height = frame.bottom + kBarsBelow,
                      .shapes = shapes});
}

}  // namespace lockstep
