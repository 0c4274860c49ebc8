#include "lockstep/training/reporting/html/internal/report_curves.h"

#include <algorithm>
#include <utility>

#include "lockstep/training/reporting/html/internal/html_text.h"
#include "lockstep/training/reporting/html/internal/line_plot.h"

namespace lockstep {
namespace {

constexpr const char* kValidation = "validation_";
constexpr const char* kUtilization = "model_flop_utilization";

using EpochMember = std::optional<double> EpochRecord::*;

PlotLine epoch_line(const RunRecord& record, const std::string& name, EpochMember member) {
  PlotLine line{.name = name};
  for (const auto& epoch : record.epochs) {
    if (const auto& value = epoch.*member)
      line.points.push_back({.x = static_cast<double>(epoch.epoch), .y = *value});
  }
  return line;
}

template <typename Record>
std::optional<double> other_value(const Record& record, const std::string& name) {
  for (const auto& [other, value] : record.others) {
    if (other == name) return value;
  }
  return std::nullopt;
}

/// Returns the names in order of first appearance.
template <typename Record>
std::vector<std::string> other_names(const std::vector<Record>& records) {
  std::vector<std::string> names;
  for (const auto& record : records) {
    for (const auto& [name, value] : record.others) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

/// Turns gradient_norm into Gradient norm.
std::string title_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return capitalized(std::move(name));
}

void add_plot(LinePlot plot, std::vector<std::string>& figures) {
  std::erase_if(plot.lines, [](const PlotLine& line) { return line.points.empty(); });
  if (!plot.lines.empty()) figures.push_back(line_plot_figure(plot));
}

/// Adds a level line for each reference loss, if there are at least two epochs to draw it over.
void add_references(const RunRecord& record, LinePlot& losses) {
  if (record.epochs.size() < 2) return;
  const auto first = static_cast<double>(record.epochs.front().epoch);
  const auto last = static_cast<double>(record.epochs.back().epoch);
  for (const auto& [name, loss] : record.reference_losses)
    losses.lines.push_back({.name = name, .points = {{.x = first, .y = loss}, {.x = last, .y = loss}}});
}

void add_other_epoch_plots(const RunRecord& record, std::vector<std::string>& figures) {
  const auto names = other_names(record.epochs);
  const auto line_of = [&](const std::string& name, const std::string& shown) {
    PlotLine line{.name = shown};
    for (const auto& epoch : record.epochs) {
      if (const auto value = other_value(epoch, name)) {
        line.points.push_back({.x = static_cast<double>(epoch.epoch), .y = *value});
      }
    }
    return line;
  };
  for (const auto& name : names) {
    const bool is_validation = name.starts_with(kValidation);
    const std::string plain = is_validation ? name.substr(std::string(kValidation).size()) : name;
    const bool has_plain = std::find(names.begin(), names.end(), plain) != names.end();
    if (is_validation && has_plain) continue;               // drawn with the training curve
    if (name == record.examples + "_per_second") continue;  // drawn above
    LinePlot plot{.title = title_of(plain)};
    if (plain == kUtilization)
      plot = {.title = "Model FLOP utilization", .y_numbers = AxisNumbers::kPercent, .y_low = 0};
    if (!is_validation) plot.lines.push_back(line_of(name, "training"));
    plot.lines.push_back(line_of(kValidation + plain, "validation"));
    add_plot(std::move(plot), figures);
  }
}

void add_step_plots(const RunRecord& record, std::vector<std::string>& figures) {
  const auto add = [&](const std::string& title, const std::string& name, const auto& value_of,
                       std::optional<double> y_low = std::nullopt) {
    LinePlot plot{
        .title = title + ", step by step", .x_label = "step", .lines = {{.name = name}}, .y_low = y_low};
    for (const auto& step : record.steps) {
      if (const auto value = value_of(step)) {
        plot.lines[0].points.push_back({.x = static_cast<double>(step.step), .y = *value});
      }
    }
    add_plot(std::move(plot), figures);
  };
  add("Loss", "loss", [](const StepRecord& step) { return step.loss; });
  add(
      "Learning rate", "learning rate", [](const StepRecord& step) { return step.learning_rate; }, 0);
  add(
      title_of(record.examples + " a second"), record.examples + " a second",
      [](const StepRecord& step) { return step.images_per_second; }, 0);
  for (const auto& name : other_names(record.steps)) {
    add(title_of(name), name, [&](const StepRecord& step) { return other_value(step, name); });
  }
}

}  // namespace

std::vector<std::string> report_curves(const RunRecord& record) {
  std::vector<std::string> figures;
  const auto line = [&](const std::string& name, EpochMember member) {
    return epoch_line(record, name, member);
  };
  LinePlot losses{
      .title = "Loss",
      .lines = {line("training", &EpochRecord::loss), line("validation", &EpochRecord::validation_loss)}};
  add_references(record, losses);
  add_plot(std::move(losses), figures);
  add_plot({.title = "Accuracy",
            .lines = {line("training", &EpochRecord::accuracy),
                      line("validation", &EpochRecord::validation_accuracy)},
            .y_numbers = AxisNumbers::kPercent},
           figures);
  add_plot({.title = title_of(record.examples + " a second"),
            .lines = {line(record.examples + " a second", &EpochRecord::images_per_second)},
            .y_low = 0},
           figures);
  const bool has_step_rates =
      std::any_of(record.steps.begin(), record.steps.end(),
                  [](const StepRecord& step) { return step.learning_rate.has_value(); });
  if (!has_step_rates) {
    add_plot(
        {.title = "Learning rate", .lines = {line("learning rate", &EpochRecord::learning_rate)}, .y_low = 0},
        figures);
  }
  add_plot({.title = "Waiting for data, share of the time",
            .lines = {line("waiting for data", &EpochRecord::data_wait_share)},
            .y_numbers = AxisNumbers::kPercent,
            .y_low = 0},
           figures);
  add_other_epoch_plots(record, figures);
  add_step_plots(record, figures);
  return figures;
}

}  // namespace lockstep
