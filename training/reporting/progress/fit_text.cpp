#include "lockstep/training/reporting/progress/fit_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/training/reporting/progress/internal/log_text.h"

namespace lockstep {
namespace {

constexpr const char* kSpeed = "examples_per_second";
constexpr const char* kValidation = "validation_";
constexpr size_t kMostRows = 20;

std::string title_of(const std::string& name, const FitTextOptions& options) {
  if (name == kSpeed) return options.unit + "/s";
  if (!name.starts_with(kValidation)) return log_title(name);
  return log_title(options.validation + "_" + name.substr(std::string(kValidation).size()));
}

std::string value_text(const std::string& name, double value, const FitTextOptions& options) {
  return name == kSpeed ? fmt::format("{:.0f}", value * static_cast<double>(options.units_per_example))
                        : log_value_text(name, value);
}

std::vector<std::string> shown_names(const std::vector<Logs>& epochs, const FitTextOptions& options) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    const bool occurs = std::any_of(epochs.begin(), epochs.end(),
                                    [&](const Logs& logs) { return logs.find(name).has_value(); });
    if (occurs && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const auto& name : options.names) add(name);
  if (!options.names.empty()) return names;
  for (const auto& logs : epochs) {
    for (const auto& [name, value] : logs) add(name);
  }
  return names;
}

/// Returns `best validation accuracy 0.9745 in epoch 3`; ties go to the first epoch.
std::string best_line(int64_t first_epoch, const std::vector<Logs>& epochs, const FitTextOptions& options) {
  for (const std::string name : {"validation_accuracy", "validation_loss"}) {
    const bool is_loss = name == "validation_loss";
    std::pair<double, int64_t> best{0, -1};
    for (size_t i = 0; i < epochs.size(); ++i) {
      const auto value = epochs[i].find(name);
      if (!value || std::isnan(*value)) continue;
      if (best.second < 0 || (is_loss ? *value < best.first : *value > best.first))
        best = {*value, first_epoch + static_cast<int64_t>(i)};
    }
    if (best.second >= 0) {
      return fmt::format("best {} {} in epoch {}\n", title_of(name, options),
                         value_text(name, best.first, options), best.second);
    }
  }
  return "";
}

}  // namespace

std::string epoch_line(int64_t epoch, int64_t epochs, const Logs& logs, const FitTextOptions& options) {
  std::string text = fmt::format("epoch {}/{}", epoch, epochs);
  for (const auto& name : shown_names({logs}, options)) {
    const std::string title = title_of(name, options), value = value_text(name, *logs.find(name), options);
    text += name == kSpeed ? fmt::format("  {} {}", value, title) : fmt::format("  {} {}", title, value);
  }
  return text;
}

std::string fit_table(int64_t first_epoch, const std::vector<Logs>& epochs, const FitTextOptions& options) {
  if (epochs.empty()) return "";
  const auto names = shown_names(epochs, options);
  std::vector<std::vector<std::string>> rows(1, {"epoch"});
  for (const auto& name : names) rows[0].push_back(title_of(name, options));
  for (size_t i = 0; i < epochs.size(); ++i) {
    if (epochs.size() > kMostRows && i >= kMostRows / 2 && i < epochs.size() - kMostRows / 2) {
      if (i == kMostRows / 2) rows.push_back(std::vector<std::string>(names.size() + 1, "..."));
      continue;
    }
    auto& row = rows.emplace_back(1, fmt::format("{}", first_epoch + static_cast<int64_t>(i)));
    for (const auto& name : names) {
      const auto value = epochs[i].find(name);
      row.push_back(value ? value_text(name, *value, options) : "-");
    }
  }
  std::vector<size_t> widths(names.size() + 1, 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i)
      text += fmt::format("{}{:>{}}", i == 0 ? "" : "  ", row[i], widths[i]);
    text += '\n';
  }
  return text + best_line(first_epoch, epochs, options);
}

}  // namespace lockstep
