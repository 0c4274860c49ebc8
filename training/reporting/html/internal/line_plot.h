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
  std::vector<PlotPoint> points;  ///< with x growing
};

/// Lines over a common x, as inline SVG for an HtmlPage, which has the colours. Points whose y is NaN or
/// infinite interrupt a line and are marked at the upper edge; what lies between more points than can be
/// seen is drawn from the lowest to the highest.
struct LinePlot {
  std::string title;
  std::string x_label = "epoch";
  std::vector<PlotLine> lines = {};
  AxisNumbers x_numbers = AxisNumbers::kWhole;
  AxisNumbers y_numbers = AxisNumbers::kPlain;
  std::optional<double> y_low = {};   ///< the axis begins there or below
  std::optional<double> y_high = {};  ///< the axis ends there or above
};

/// A <figure>. All texts are escaped.
std::string line_plot_figure(const LinePlot& plot);

}  // namespace lockstep
