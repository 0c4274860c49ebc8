#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/training/reporting/html/internal/plot_axis.h"

namespace lockstep {

struct PlotPoint {
  double x = 0;
  double y = 0;
};

struct PlotLine {
  std::string name;
  std::vector<PlotPoint> points;  ///< in ascending order of x
};

/// Lines over a common x, as inline SVG for an HtmlPage, which defines the colours. A point whose y is NaN or
/// infinite interrupts the line and is marked at the upper edge. If there are more points than can be seen,
/// draws them as a range from the lowest to the highest.
struct LinePlot {
  std::string title;
  std::string x_label = "epoch";
  std::vector<PlotLine> lines = {};
  AxisNumbers x_numbers = AxisNumbers::kWhole;
  AxisNumbers y_numbers = AxisNumbers::kPlain;
  std::optional<double> y_low = {};   ///< the axis begins here or below
  std::optional<double> y_high = {};  ///< the axis ends here or above
};

/// Returns a <figure>. Escapes all texts.
std::string line_plot_figure(const LinePlot& plot);

}  // namespace lockstep
