#include "lockstep/training/reporting/html/learning_rate_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/runtime/base/files/output_file.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/training/reporting/html/internal/html_page.h"
#include "lockstep/training/reporting/html/internal/line_plot.h"

namespace lockstep {
namespace {

PlotLine line_of(const std::string& name, const LearningRateSweep& sweep, const std::vector<double>& losses) {
  PlotLine line{.name = name};
  for (size_t i = 0; i < losses.size(); ++i)
    line.points.push_back({.x = std::log10(sweep.learning_rates[i]), .y = losses[i]});
  return line;
}

/// A vertical line at the suggestion, as high as the smoothed losses.
PlotLine suggestion_of(const LearningRateSweep& sweep) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double low = kInfinity, high = -kInfinity;
  for (const double loss : sweep.smoothed_losses) {
    if (!std::isfinite(loss)) continue;
    low = std::min(low, loss);
    high = std::max(high, loss);
  }
  const double x = std::log10(*sweep.suggestion);
  return {.name = "suggestion", .points = {{.x = x, .y = low}, {.x = x, .y = high}}};
}

std::string suggestion_text(const LearningRateSweep& sweep) {
  if (!sweep.suggestion)
    return "No suggestion: the loss falls nowhere. Try a wider range of learning rates, or more steps.";
  return "Suggested learning rate: " + short_number(*sweep.suggestion, 3) +
         ", at which the loss falls fastest.";
}

}  // namespace

std::string learning_rate_html(const LearningRateSweep& sweep) {
  LinePlot plot{.title = "Loss, smoothed",
                .x_label = "learning rate",
                .lines = {line_of("loss", sweep, sweep.smoothed_losses)},
                .x_numbers = AxisNumbers::kPowersOfTen};
  if (sweep.suggestion) plot.lines.push_back(suggestion_of(sweep));
  HtmlPage page("Learning rates");
  page.line(suggestion_text(sweep));
  page.line(
      "Each point is a training step; its learning rate is higher than that of the step before by the "
      "same factor." +
      std::string(sweep.has_diverged ? " The sweep ended where the loss had grown too large." : ""));
  page.figures({line_plot_figure(plot)});
  return page.html();
}

void write_learning_rate_plot(const LearningRateSweep& sweep, const std::string& path) {
  replace_file(path, learning_rate_html(sweep));
}

}  // namespace lockstep
