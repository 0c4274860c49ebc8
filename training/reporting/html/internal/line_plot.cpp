#include "lockstep/training/reporting/html/internal/line_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/training/reporting/html/internal/html_text.h"
#include "lockstep/training/reporting/html/internal/svg_shapes.h"

namespace lockstep {
namespace {

constexpr double kPlotWidth = 440;
constexpr double kPlotHeight = 250;
constexpr double kTop = 14;
constexpr double kBelow = 44;  // tick labels and the axis name
constexpr size_t kNumStyles = 8;

/// The axes and their position.
struct PlotFrame {
  PlotAxis x;
  PlotAxis y;
  SvgBox box;

  SvgPoint place(const PlotPoint& point) const {
    // Points outside are drawn at the edge: an axis does not reach the ends of the range of doubles.
    const double right = std::clamp((point.x - x.low) / (x.high - x.low), 0.0, 1.0);
    const double up = std::clamp((point.y - y.low) / (y.high - y.low), 0.0, 1.0);
    return {box.x + right * box.width, box.y + box.height - up * box.height};
  }
};

struct Extent {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool is_empty() const { return low > high; }
};

PlotFrame make_frame(const LinePlot& plot) {
  Extent x;
  Extent y;
  for (const auto& line : plot.lines) {
    for (const auto& point : line.points) {
      x.add(point.x);
      y.add(point.y);
    }
  }
  if (x.is_empty()) x = {.low = 0, .high = 1};
  const bool has_numbers = !y.is_empty();
  if (!has_numbers) y = {.low = 0, .high = 1};
  if (plot.y_low) y.add(*plot.y_low);
  if (plot.y_high) y.add(*plot.y_high);
  PlotFrame frame;
  frame.x = make_axis(x.low, x.high, {.numbers = plot.x_numbers, .max_ticks = 8, .ends_at_ticks = false});
  frame.y = make_axis(y.low, y.high, {.numbers = plot.y_numbers});
  if (!has_numbers) frame.y.ticks.clear();
  double widest = 0;
  for (const auto& tick : frame.y.ticks) widest = std::max(widest, text_width(tick.label, kPlotFontSize));
  const double right = std::max(12.0, text_width(frame.x.ticks.back().label, kPlotFontSize) / 2);
  frame.box = {.x = widest + 10,
               .y = kTop,
               .width = kPlotWidth - widest - 10 - right,
               .height = kPlotHeight - kTop - kBelow};
  return frame;
}

std::string axes_shapes(const LinePlot& plot, const PlotFrame& frame) {
  const SvgBox& box = frame.box;
  const double bottom = box.y + box.height;
  std::string shapes;
  for (const auto& tick : frame.y.ticks) {
    const double y = frame.place({.x = frame.x.low, .y = tick.value}).y;
    shapes += svg_line({box.x, y}, {box.x + box.width, y}, "grid");
    shapes += svg_text({box.x - 6, y + 4.5}, tick.label, TextAnchor::kEnd);
  }
  double free_from = -1;
  for (const auto& tick : frame.x.ticks) {
    const double x = frame.place({.x = tick.value, .y = frame.y.low}).x;
    shapes += svg_line({x, bottom}, {x, bottom + 4}, "axis");
    const double half = text_width(tick.label, kPlotFontSize) / 2;
    if (x - half < free_from) continue;  // would touch the label before
    shapes += svg_text({x, bottom + 18}, tick.label, TextAnchor::kMiddle);
    free_from = x + half + 6;
  }
  shapes += svg_line({box.x, bottom}, {box.x + box.width, bottom}, "axis");
  return shapes +
         svg_text({box.x + box.width / 2, kPlotHeight - 6}, plot.x_label, TextAnchor::kMiddle, "label");
}

/// Keeps, of the points in the same column of pixels, the first, lowest, highest and last, and one that is
/// not finite.
std::vector<PlotPoint> visible_points(const std::vector<PlotPoint>& points, const PlotFrame& frame) {
  if (static_cast<double>(points.size()) <= 2 * frame.box.width) return points;
  std::vector<PlotPoint> visible;
  const auto column = [&](const PlotPoint& point) {
    return std::floor(frame.place({point.x, frame.y.low}).x);
  };
  for (size_t begin = 0, end = 0; begin < points.size(); begin = end) {
    while (end < points.size() && column(points[end]) == column(points[begin])) ++end;
    size_t lowest = begin;
    size_t highest = begin;
    size_t odd = begin;
    for (size_t i = begin; i < end; ++i) {
      const double y = points[i].y;
      if (!std::isfinite(y)) {
        odd = i;
        continue;
      }
      if (!std::isfinite(points[lowest].y) || y < points[lowest].y) lowest = i;
      if (!std::isfinite(points[highest].y) || y > points[highest].y) highest = i;
    }
    std::vector<size_t> kept = {begin, lowest, highest, odd, end - 1};
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (const size_t i : kept) visible.push_back(points[i]);
  }
  return visible;
}

/// Returns the marker that distinguishes a line whatever its colour: a circle, square, triangle or rhombus.
std::string marker_shape(const SvgPoint& at, size_t style) {
  constexpr double kSize = 3.4;
  const auto move = [&](double x, double y) {
    return svg_number(at.x + x * kSize) + " " + svg_number(at.y + y * kSize);
  };
  switch (style % 4) {
    case 0:
      return "M" + move(-1, 0) + "a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0z";
    case 1:
      return "M" + move(-0.9, -0.9) + "h6.1v6.1h-6.1z";
    case 2:
      return "M" + move(0, -1.2) + "L" + move(1.15, 0.9) + "L" + move(-1.15, 0.9) + "z";
    default:
      return "M" + move(0, -1.3) + "L" + move(1.3, 0) + "L" + move(0, 1.3) + "L" + move(-1.3, 0) + "z";
  }
}

std::string point_tip(const LinePlot& plot, const PlotLine& line, const PlotPoint& point) {
  const std::string value =
      plot.y_numbers == AxisNumbers::kPercent ? percent_text(point.y) : short_number(point.y);
  const std::string x = plot.x_numbers == AxisNumbers::kPowersOfTen ? short_number(std::pow(10, point.x))
                                                                    : short_number(point.x, 10);
  return line.name + ", " + plot.x_label + " " + x + ": " + value;
}

/// Marks a point that has no number.
std::string cross_shape(const SvgPoint& at) {
  return "M" + svg_number(at.x - 4) + " " + svg_number(at.y - 4) + "l8 8m0 -8l-8 8";
}

std::string style_of(size_t index) {
  return "s" + std::to_string(index % kNumStyles);
}

std::string line_shapes(const LinePlot& plot, const PlotFrame& frame, size_t index) {
  constexpr size_t kMostMarked = 40;
  const PlotLine& line = plot.lines[index];
  const std::string style = style_of(index);
  const auto points = visible_points(line.points, frame);
  std::string path;
  std::string marks;
  bool is_joined = false;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto& point = points[i];
    if (!std::isfinite(point.y)) {
      is_joined = false;
      const SvgPoint at = frame.place({.x = point.x, .y = frame.y.high});
      marks += svg_path(cross_shape(at), "odd " + style, point_tip(plot, line, point));
      continue;
    }
    const SvgPoint at = frame.place(point);
    path += (is_joined ? "L" : "M") + svg_number(at.x) + " " + svg_number(at.y);
    // A point without neighbours has no visible line.
    const bool is_alone = !is_joined && (i + 1 == points.size() || !std::isfinite(points[i + 1].y));
    if (line.points.size() <= kMostMarked || is_alone) {
      marks += svg_path(marker_shape(at, index), "mark " + style, point_tip(plot, line, point));
    }
    is_joined = true;
  }
  if (path.empty()) return marks;
  const bool is_dense = static_cast<double>(points.size()) > frame.box.width;
  return svg_path(path, "line " + style + (is_dense ? " dense" : "")) + marks;
}

bool has_odd_points(const LinePlot& plot) {
  return std::any_of(plot.lines.begin(), plot.lines.end(), [](const PlotLine& line) {
    return std::any_of(line.points.begin(), line.points.end(),
                       [](const auto& point) { return !std::isfinite(point.y); });
  });
}

std::string line_legend(const LinePlot& plot) {
  const bool has_odd = has_odd_points(plot);
  if (plot.lines.size() < 2 && !has_odd) return "";
  std::string items;
  const auto add = [&](const std::string& shape, const std::string& name) {
    items += "<li><svg class=\"key\" width=\"28\" height=\"12\" aria-hidden=\"true\">" + shape + "</svg>" +
             escape_html(name) + "</li>\n";
  };
  for (size_t index = 0; index < plot.lines.size(); ++index) {
    const std::string style = style_of(index);
    add(svg_path("M1 6H27", "line " + style) + svg_path(marker_shape({14, 6}, index), "mark " + style),
        plot.lines[index].name);
  }
  if (has_odd) add(svg_path(cross_shape({14, 6}), "odd"), "NaN or infinite");
  return "<ul class=\"legend\">\n" + items + "</ul>\n";
}

std::string summary_of(const LinePlot& plot) {
  std::string summary = plot.title + " over " + plot.x_label;
  for (const auto& line : plot.lines) {
    if (!line.points.empty()) summary += "; " + line.name + " ends at " + short_number(line.points.back().y);
  }
  return summary;
}

}  // namespace

std::string line_plot_figure(const LinePlot& plot) {
  const PlotFrame frame = make_frame(plot);
  std::string shapes = axes_shapes(plot, frame);
  for (size_t index = 0; index < plot.lines.size(); ++index) shapes += line_shapes(plot, frame, index);
  return plot_figure({.caption = plot.title,
                      .summary = summary_of(plot),
                      .legend = line_legend(plot),
                      .width = kPlotWidth,
                      .height = kPlotHeight,
                      .shapes = shapes});
}

}  // namespace lockstep
