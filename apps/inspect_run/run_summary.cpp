#include "lockstep/apps/inspect_run/run_summary.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>

#include "lockstep/apps/inspect_run/run_files.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/training/reporting/records/run_directory.h"

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;

/// Returns the bytes of a file, or of all files below a folder. Links are not followed. Files that vanish
/// meanwhile are not counted.
uint64_t bytes_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(path, error))) {
    const uint64_t bytes = fs::is_regular_file(path, error) ? fs::file_size(path, error) : 0;
    return error ? 0 : bytes;
  }
  uint64_t bytes = 0;
  for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_regular_file(error) && !entry->is_symlink(error)) bytes += bytes_of(entry->path());
  }
  return bytes;
}

/// Returns the entries of a folder, sorted by name.
std::vector<RunFile> files_in(const std::string& folder) {
  std::vector<RunFile> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    files.push_back({.name = entry->path().filename().string(), .bytes = bytes_of(entry->path())});
  }
  std::sort(files.begin(), files.end(), [](const RunFile& a, const RunFile& b) { return a.name < b.name; });
  return files;
}

/// Returns the event files at any depth, sorted by name.
std::vector<RunFile> event_files_in(const std::string& folder) {
  std::vector<RunFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.find("tfevents") == std::string::npos) continue;
    files.push_back(
        {.name = fs::relative(entry->path(), folder, error).string(), .bytes = bytes_of(entry->path())});
  }
  std::sort(files.begin(), files.end(), [](const RunFile& a, const RunFile& b) { return a.name < b.name; });
  return files;
}

void check_run_directory(const RunPaths& paths) {
  std::error_code error;
  if (!fs::is_directory(paths.folder, error)) {
    throw UsageError("DIR: expected the directory of a run, but got '" + paths.folder + "', which is " +
                     (fs::exists(paths.folder, error) ? "not a folder" : "missing"));
  }
  const fs::directory_iterator readable(paths.folder, error);
  if (error) throw RunDirectoryError("[inspect_run] cannot list '" + paths.folder + "': " + error.message());
  for (const auto& part : {paths.config(), paths.metrics_csv(), paths.metrics_jsonl(), paths.tensorboard(),
                           paths.checkpoints(), paths.report()}) {
    if (fs::exists(fs::symlink_status(part, error))) return;
  }
  throw RunDirectoryError("[inspect_run] expected the directory of a run, but '" + paths.folder +
                          "' holds no config.json, metrics.jsonl or other part of one");
}

}  // namespace

RunSummary summarise_run(const std::string& folder) {
  const RunPaths paths{folder};
  check_run_directory(paths);
  RunSummary summary{.folder = folder};
  // Read first: a run that ends meanwhile writes the end of its metrics before it gives up the directory.
  summary.owner = run_directory_owner(paths);
  read_run_configuration(paths.config(), summary);
  read_run_metrics(paths.metrics_jsonl(), summary);
  summary.checkpoints = files_in(paths.checkpoints());
  summary.event_files = event_files_in(paths.tensorboard());
  std::error_code error;
  if (fs::is_regular_file(paths.report(), error)) summary.report_bytes = bytes_of(paths.report());
  return summary;
}

const MetricValue* find_value(const MetricRow& row, const std::string& name) {
  const auto found =
      std::find_if(row.begin(), row.end(), [&](const auto& entry) { return entry.first == name; });
  return found == row.end() ? nullptr : &found->second;
}

std::optional<double> find_number(const MetricRow& row, const std::string& name) {
  const MetricValue* value = find_value(row, name);
  if (value == nullptr) return std::nullopt;
  if (const auto* integer = std::get_if<int64_t>(value)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(value)) return *number;
  const std::string& text = std::get<std::string>(*value);
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

std::optional<BestEpoch> best_epoch(const std::vector<MetricRow>& epochs) {
  for (const std::string metric : {"validation_accuracy", "validation_loss", "accuracy", "loss"}) {
    const double sign = metric.ends_with("accuracy") ? 1 : -1;
    std::optional<BestEpoch> best;
    for (size_t index = 0; index < epochs.size(); ++index) {
      const auto value = find_number(epochs[index], metric);
      if (!value || !std::isfinite(*value)) continue;
      if (!best || sign * *value > sign * best->value) best = BestEpoch{index, metric, *value};
    }
    if (best) return best;
  }
  return std::nullopt;
}

std::string run_status(const RunSummary& summary) {
  if (summary.end) {
    const MetricValue* status = find_value(*summary.end, "status");
    const auto* text = status == nullptr ? nullptr : std::get_if<std::string>(status);
    return text == nullptr ? "completed" : *text;
  }
  return summary.owner ? "running" : "ended_early";
}

}  // namespace lockstep::apps
