#include "lockstep/apps/compare_strategies/report/comparison_page.h"

#include <cctype>
#include <string>

#include "lockstep/training/reporting/html/internal/bar_plot.h"
#include "lockstep/training/reporting/html/internal/html_page.h"
#include "lockstep/training/reporting/html/internal/html_text.h"
#include "lockstep/training/reporting/html/internal/line_plot.h"

namespace lockstep::apps {
namespace {

std::string speed_figure(const ComparisonReport& report) {
  std::string examples = examples_of(report.options.work);
  BarPlot plot{.value_label = examples + "/s, median of the rounds and its 95 % interval"};
  examples[0] = static_cast<char>(std::toupper(examples[0]));
  plot.title = examples + " a second";
  for (const auto& row : report.rows) {
    PlotBar bar{.name = row.strategy.label};
    if (row.failure) {
      bar.note = "exit code " + std::to_string(row.failure->exit_code);
    } else {
      const Spread& speed = row.examples_per_second;
      bar.value = speed.median;
      if (speed.interval) bar.interval = {{speed.interval->lower, speed.interval->upper}};
    }
    plot.bars.push_back(std::move(bar));
  }
  return bar_plot_figure(plot);
}

std::string loss_figure(const ComparisonReport& report) {
  LinePlot plot{.title = "Loss of the global batch", .x_label = "step"};
  for (const auto& row : report.rows) {
    if (row.failure) continue;
    PlotLine line{.name = row.strategy.label, .points = {}};
    for (size_t step = 0; step < row.losses.size(); ++step)
      line.points.push_back({static_cast<double>(step + 1), row.losses[step]});
    plot.lines.push_back(std::move(line));
  }
  return line_plot_figure(plot);
}

/// Writes an interval with a dash, which takes less room than a word.
std::string dashed(const std::string& cell) {
  const std::string word = " to ";
  const size_t at = cell.find(word);
  return at == std::string::npos ? cell : cell.substr(0, at) + "\u2013" + cell.substr(at + word.size());
}

/// Leaves out the column of errors, which are lines of text.
std::string table_of(const ComparisonReport& report) {
  const ComparisonTable table = comparison_table(report);
  HtmlTable html;
  for (const auto& name : table.header) {
    if (name != "error") html.columns.push_back({.name = name, .is_number = name != "strategy"});
  }
  for (const auto& row : table.rows) {
    auto& cells = html.rows.emplace_back();
    for (size_t i = 0; i < html.columns.size(); ++i)
      cells.push_back(html.columns[i].is_number ? dashed(row[i]) : row[i]);
  }
  if (const int advised = advised_strategy(report.rows); advised >= 0)
    html.marked_rows.push_back(static_cast<size_t>(advised));
  return html_table(html);
}

}  // namespace

std::string comparison_page(const ComparisonReport& report) {
  HtmlPage page("Comparison of strategies");
  page.line(advice(report.rows, examples_of(report.options.work)));
  page.line(work_text(report));
  page.line(report.date + ", " + report.machine + ", Lockstep " + report.version);
  page.figures({speed_figure(report), loss_figure(report)});
  page.heading("Every figure").elements(table_of(report));
  for (const auto& row : report.rows) {
    if (!row.failure) continue;
    page.paragraph(row.strategy.label + " failed with exit code " + std::to_string(row.failure->exit_code) +
                   ": " + row.failure->message);
  }
  for (const auto& note : weight_notes(report)) page.paragraph(note);
  page.paragraph(
      "Each strategy trained the same batches from the same weights, in processes of its own, once in every "
      "round. Losses and parameters are those of the first round. Data wait is the share of the time in "
      "which the loop waited for a batch. Communication is the share in which a replica waited for the "
      "others, averaged over the replicas. With parameter servers, it is the share in which workers did not "
      "compute, so it includes waiting for a batch.");
  return page.html();
}

}  // namespace lockstep::apps
