#pragma once

#include <string>

#include "lockstep/apps/inspect_data/column_summary.h"

namespace lockstep::apps {

/// A histogram as inline SVG for an HtmlPage.
struct HistogramPlot {
  std::string title;
  std::string value_label = {};  ///< meaning of the numbers, with their unit
  const NumberSummary* numbers = nullptr;
  bool is_whole = false;  ///< the numbers are integers
};

/// Returns a <figure>; the axis has powers of ten if is_skewed(). Escapes all texts. There must be a number.
std::string histogram_figure(const HistogramPlot& plot);

}  // namespace lockstep::apps
