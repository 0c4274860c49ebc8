#pragma once

#include <string>

namespace lockstep {

/// Lengths in a plot's own units, which are pixels where it is shown at its natural size; y grows downwards.
struct SvgPoint {
  double x = 0;
  double y = 0;
};

struct SvgBox {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

enum class TextAnchor { kStart, kMiddle, kEnd };

/// A length with two digits after the point at most.
std::string svg_number(double value);

/// How wide a text of the plots' font is, at most as a rule: SVG cannot ask before it is drawn.
double text_width(const std::string& text, double font_size);

/// The plots' font size.
inline constexpr double kPlotFontSize = 13;

/// Elements. `style` is the CSS class; a tip, where there is one, shows when the pointer rests on the
/// element. Texts are escaped.
std::string svg_line(const SvgPoint& from, const SvgPoint& to, const std::string& style);
std::string svg_rectangle(const SvgBox& box, const std::string& style, const std::string& tip = "",
                          const std::string& attributes = "");
/// `data` as in SVG's attribute d.
std::string svg_path(const std::string& data, const std::string& style, const std::string& tip = "");
std::string svg_text(const SvgPoint& baseline, const std::string& text, TextAnchor anchor,
                     const std::string& style = "", const std::string& attributes = "");

/// <figure> with a caption, `legend` (HTML, may be empty) and an <svg class="plot"> of that size, whose
/// description is `summary` for those who cannot see it.
struct PlotFigure {
  std::string caption;
  std::string summary;
  std::string legend = "";
  double width = 0;
  double height = 0;
  std::string shapes;    ///< elements
  bool grows = true;     ///< to the width of its place; else it is never larger than its natural size
  double narrowest = 0;  ///< in pixels: scrolls sideways in less
};

std::string plot_figure(const PlotFigure& figure);

}  // namespace lockstep
