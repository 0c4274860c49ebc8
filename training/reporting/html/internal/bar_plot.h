#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/training/reporting/html/internal/plot_axis.h"

namespace lockstep {

struct PlotBar {
  std::string name;
  double value = 0;
  std::optional<std::pair<double, double>> interval =
      {};                 ///< its lower and upper end, drawn across the bar's
  std::string note = "";  ///< instead of a bar, such as why there is none
};

/// Bars from zero to the right, one below the other, as inline SVG for an HtmlPage.
struct BarPlot {
  std::string title;
  std::string value_label;  ///< what the values are, with their unit
  std::vector<PlotBar> bars = {};
  AxisNumbers numbers = AxisNumbers::kPlain;
  std::optional<double> reference = {};  ///< a line across all bars, at 1 where they are ratios
};

/// A <figure>. All texts are escaped. NaN and infinite values have no bar and are said in words.
std::string bar_plot_figure(const BarPlot& plot);

}  // namespace lockstep
