#include "lockstep/apps/plan/memory_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lockstep/apps/plan/plan_report.h"
#include "lockstep/apps/shared/planning/quantity.h"
#include "lockstep/training/reporting/html/internal/html_text.h"
#include "lockstep/training/reporting/html/internal/plot_axis.h"
#include "lockstep/training/reporting/html/internal/svg_shapes.h"

namespace lockstep::apps {
namespace {

constexpr double kWidth = 860;
constexpr double kRight = 86;  // for a bar's number
constexpr double kTop = 66;    // title and legend
constexpr double kRow = 24, kBar = 17;
constexpr double kBelow = 46;
constexpr double kGibibyte = 1024.0 * 1024 * 1024;

/// The colours of the reports' lines (html_style.cpp), which every kind of colour vision tells apart, and
/// three for tables, whose parts are next to each other.
std::string chart_style() {
  constexpr std::array kLight{"#0072b2", "#c04a00", "#007f5c", "#a8497f", "#b07600", "#2f8fc9",
                              "#6b6b00", "#666d75", "#5b3fa0", "#b3261e", "#00707c"};
  constexpr std::array kDark{"#58b4f0", "#ff9152", "#2fc898", "#e295c0", "#efb640", "#8fd0ff",
                             "#dbdb5a", "#aab3bd", "#b9a2f0", "#ff8a80", "#7fdbe6"};
  const auto parts = [](const auto& colors) {
    std::string rules;
    for (size_t i = 0; i < colors.size(); ++i) rules += fmt::format(".s{}{{fill:{}}}", i, colors[i]);
    return rules;
  };
  const auto scheme = [](const char* page, const char* text, const char* quiet, const char* grid,
                         const char* axis) {
    return fmt::format(
        ".page{{fill:{}}}text{{fill:{}}}text.title{{fill:{}}}.grid{{stroke:{}}}.axis{{stroke:{}}}.limit{{"
        "stroke:{}}}",
        page, quiet, text, grid, axis, text);
  };
  return "<style>text{font:13px system-ui,-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\",\"DejaVu "
         "Sans\",sans-serif;"
         "font-variant-numeric:tabular-nums}text.title{font-weight:600}.limit{stroke-dasharray:4 3}" +
         scheme("#ffffff", "#1b1f24", "#57606a", "#e3e6ea", "#8b939c") + parts(kLight) +
         "@media (prefers-color-scheme: dark){" +
         scheme("#161b22", "#e6edf3", "#9da7b1", "#262c34", "#6e7781") + parts(kDark) + "}</style>\n";
}

std::string name_of_stage(const MemoryChart& chart, size_t stage) {
  if (chart.has_servers) return stage == 0 ? "each replica" : "each server";
  if (chart.ranks.size() == 1) return chart.devices_per_stage == 1 ? "the device" : "each device";
  return fmt::format("stage {}", stage);
}

/// Returns the legend, in as many lines as it takes, and the y below it.
std::string chart_legend(const std::vector<bool>& is_there, double& y) {
  std::string shapes;
  double x = 0;
  const auto names = memory_parts({});
  for (size_t i = 0; i < names.size(); ++i) {
    if (!is_there[i]) continue;
    const double width = 18 + text_width(names[i].first, kPlotFontSize) + 14;
    if (x + width > kWidth) {
      x = 0;
      y += 18;
    }
    shapes += svg_rectangle({x, y - 10, 12, 12}, fmt::format("s{}", i));
    shapes += svg_text({x + 18, y}, names[i].first, TextAnchor::kStart);
    x += width;
  }
  return shapes;
}

}  // namespace

std::string memory_chart_svg(const MemoryChart& chart) {
  std::vector<bool> is_there(memory_parts({}).size(), false);
  double most = chart.limit;
  double left = 0;
  for (size_t stage = 0; stage < chart.ranks.size(); ++stage) {
    const auto parts = memory_parts(chart.ranks[stage]);
    for (size_t i = 0; i < parts.size(); ++i) is_there[i] = is_there[i] || parts[i].second > 0;
    most = std::max(most, chart.ranks[stage].peak());
    left = std::max(left, text_width(name_of_stage(chart, stage), kPlotFontSize) + 10);
  }
  const bool is_small = most < kGibibyte;
  const double unit = is_small ? 1024.0 * 1024 : kGibibyte;
  const PlotAxis axis = make_axis(0, most / unit, {.max_ticks = 8, .ends_at_ticks = false});
  const auto place = [&](double bytes) { return left + bytes / unit / axis.high * (kWidth - kRight - left); };
  double legend_y = 44;
  std::string shapes = svg_text({0, 18}, chart.title, TextAnchor::kStart, "title");
  shapes += chart_legend(is_there, legend_y);
  const double top = kTop + legend_y - 44;
  const double bottom = top + kRow * static_cast<double>(chart.ranks.size());
  for (const auto& tick : axis.ticks) {
    shapes += svg_line({place(tick.value * unit), top - 4}, {place(tick.value * unit), bottom}, "grid");
    shapes += svg_text({place(tick.value * unit), bottom + 18}, tick.label, TextAnchor::kMiddle);
  }
  for (size_t stage = 0; stage < chart.ranks.size(); ++stage) {
    const double y = top + kRow * static_cast<double>(stage) + (kRow - kBar) / 2;
    const std::string name = name_of_stage(chart, stage);
    shapes += svg_text({left - 8, y + kBar / 2 + 4.5}, name, TextAnchor::kEnd);
    double bytes = 0;
    const auto parts = memory_parts(chart.ranks[stage]);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].second <= 0) continue;
      shapes += svg_rectangle(
          {place(bytes), y, place(bytes + parts[i].second) - place(bytes), kBar}, fmt::format("s{}", i),
          fmt::format("{}: {} {}", name, parts[i].first, gibibytes_text(parts[i].second)));
      bytes += parts[i].second;
    }
    const std::string sum = gibibytes_text(bytes);
    double x = place(bytes) + 6;
    // The line of the limit would go through the text.
    if (chart.limit > 0 && x < place(chart.limit) + 6 &&
        x + text_width(sum, kPlotFontSize) > place(chart.limit))
      x = place(chart.limit) + 6;
    shapes += svg_text({x, y + kBar / 2 + 4.5}, sum, TextAnchor::kStart);
  }
  shapes += svg_line({left, bottom}, {kWidth - kRight, bottom}, "axis");
  if (chart.limit > 0)
    shapes += svg_line({place(chart.limit), top - 4}, {place(chart.limit), bottom}, "limit");
  const std::string every = chart.devices_per_stage == 1 || chart.has_servers
                                ? ""
                                : fmt::format(", on each of {} devices", chart.devices_per_stage);
  shapes += svg_text({left, bottom + 38},
                     fmt::format("{}{}{}", is_small ? "MiB" : "GiB", every,
                                 chart.limit > 0 ? "; the dashed line is the memory of a device" : ""),
                     TextAnchor::kStart);
  const double height = bottom + kBelow;
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-16 -8 {} {}\" width=\"{}\" height=\"{}\" "
             "role=\"img\" aria-label=\"{}\">\n",
             kWidth + 32, height + 16, kWidth + 32, height + 16, escape_html(chart.title)) +
         chart_style() + svg_rectangle({-16, -8, kWidth + 32, height + 16}, "page") + shapes + "</svg>\n";
}

}  // namespace lockstep::apps
