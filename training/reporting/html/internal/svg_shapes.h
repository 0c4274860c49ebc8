#pragma once

#include <string>

namespace lockstep {

/// A point in a plot's own units, which are pixels at its natural size; y increases downwards.
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

/// Formats a length with at most two decimal places.
std::string svg_number(double value);

/// Estimates the maximum width of a text in the plots' font; SVG cannot measure it before drawing.
double text_width(const std::string& text, double font_size);

/// Font size of the plots.
inline constexpr double kPlotFontSize = 13;

/// The functions below return elements. `style` is the CSS class. A `tip`, if any, shows when the pointer
/// rests on the element. Texts are escaped.
std::string svg_line(const SvgPoint& from, const SvgPoint& to, const std::string& style);
std::string svg_rectangle(const SvgBox& box, const std::string& style, const std::string& tip = "",
                          const std::string& attributes = "");
/// `data` as in SVG's attribute d.
std::string svg_path(const std::string& data, const std::string& style, const std::string& tip = "");
std::string svg_text(const SvgPoint& baseline, const std::string& text, TextAnchor anchor,
                     const std::string& style = "", const std::string& attributes = "");

/// A <figure> with a caption, `legend` (HTML, may be empty) and an <svg class="plot"> of the given size.
/// `summary` describes it for readers who cannot see it.
struct PlotFigure {
  std::string caption;
  std::string summary;
  std::string legend = "";
  double width = 0;
  double height = 0;
  std::string shapes;    ///< elements
  bool grows = true;     ///< grow to the available width; otherwise never exceed the natural size
  double narrowest = 0;  ///< minimum width in pixels; scrolls sideways if less is available
};

std::string plot_figure(const PlotFigure& figure);

}  // namespace lockstep
