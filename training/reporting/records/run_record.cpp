#include "lockstep/training/reporting/records/run_record.h"

#include <algorithm>

#include "lockstep/runtime/base/files/folder_lock.h"
#include "lockstep/runtime/base/internal/utc_text.h"

namespace lockstep {
namespace {

void add_if_measured(MetricRow& row, const std::string& name, const std::optional<double>& value) {
  const bool is_new =
      std::none_of(row.begin(), row.end(), [&](const auto& entry) { return entry.first == name; });
  if (value && is_new) row.emplace_back(name, *value);
}

}  // namespace

std::string status_name(RunStatus status) {
  switch (status) {
    case RunStatus::kCompleted:
      return "completed";
    case RunStatus::kStoppedEarly:
      return "stopped_early";
    case RunStatus::kInterrupted:
      return "interrupted";
    case RunStatus::kFailed:
      break;
  }
  return "failed";
}

RunStart RunStart::now() {
  RunStart start{.time = std::chrono::system_clock::now(), .version = LOCKSTEP_VERSION};
  if (const std::string host = FolderOwner::here().host; !host.empty()) start.hosts = {host};
  return start;
}

MetricRow metric_row(const RunStart& start) {
  MetricRow row;
  if (start.time) row.emplace_back("time", utc_text(*start.time, "%Y-%m-%dT%H:%M:%SZ"));
  std::string hosts;
  for (const auto& host : start.hosts) hosts += (hosts.empty() ? "" : ",") + host;
  if (!hosts.empty()) row.emplace_back("hosts", hosts);
  if (!start.version.empty()) row.emplace_back("version", start.version);
  return row;
}

MetricRow metric_row(const StepRecord& step) {
  MetricRow row = {{"step", step.step}};
  add_if_measured(row, "loss", step.loss);
  add_if_measured(row, "learning_rate", step.learning_rate);
  add_if_measured(row, "images_per_second", step.images_per_second);
  for (const auto& [name, value] : step.others) add_if_measured(row, name, value);
  return row;
}

MetricRow metric_row(const EpochRecord& epoch) {
  MetricRow row = {{"epoch", epoch.epoch}, {"step", epoch.step}};
  add_if_measured(row, "loss", epoch.loss);
  add_if_measured(row, "accuracy", epoch.accuracy);
  add_if_measured(row, "validation_loss", epoch.validation_loss);
  add_if_measured(row, "validation_accuracy", epoch.validation_accuracy);
  add_if_measured(row, "learning_rate", epoch.learning_rate);
  add_if_measured(row, "images_per_second", epoch.images_per_second);
  add_if_measured(row, "data_wait_share", epoch.data_wait_share);
  add_if_measured(row, "seconds", epoch.seconds);
  for (const auto& [name, value] : epoch.others) add_if_measured(row, name, value);
  return row;
}

MetricRow metric_row(const MemoryRecord& memory) {
  MetricRow row = {
      {"parameters", memory.parameters}, {"buffers", memory.buffers}, {"gradients", memory.gradients}};
  if (memory.optimizer_state) row.emplace_back("optimizer_state", *memory.optimizer_state);
  row.emplace_back("communication_buckets", memory.communication_buckets);
  if (memory.activations) row.emplace_back("activations", *memory.activations);
  if (memory.peak) row.emplace_back(memory.is_of_process ? "peak_of_process" : "peak_of_gpus", *memory.peak);
  return row;
}

MetricRow metric_row(const RunTotals& totals) {
  MetricRow row = {{"status", status_name(totals.status)}};
  if (!totals.reason.empty()) row.emplace_back("reason", totals.reason);
  row.emplace_back("epochs", totals.epochs);
  row.emplace_back("steps", totals.steps);
  row.emplace_back("images", totals.images);
  row.emplace_back("seconds", totals.seconds);
  row.emplace_back("start_up_seconds", totals.start_up_seconds);
  if (totals.steps_before > 0) row.emplace_back("steps_before", totals.steps_before);
  return row;
}

MetricRow with_kind(const std::string& kind, MetricRow row) {
  row.insert(row.begin(), {"kind", kind});
  return row;
}

}  // namespace lockstep
