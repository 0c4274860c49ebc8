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
  /// Lower and upper end, drawn across the bar's end.
  std::optional<std::pair<double, double>> interval = {};
  std::string note = "";  ///< text instead of a bar, such as why there is none
};

/// Horizontal bars from zero, one below the other, as inline SVG for an HtmlPage.
struct BarPlot {
  std::string title;
  std::string value_label;  ///< meaning of the values, with their unit
  std::vector<PlotBar> bars = {};
  AxisNumbers numbers = AxisNumbers::kPlain;
  /// A line across all bars, for example at 1 if they are ratios.
  std::optional<double> reference = {};
};

/// Returns a <figure>. Escapes all texts. NaN and infinite values have no bar and are shown as words.
std::string bar_plot_figure(const BarPlot& plot);

}  // namespace lockstep
