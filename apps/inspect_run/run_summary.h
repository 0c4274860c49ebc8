#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/inspect_run/epoch_summary.h"
#include "lockstep/training/reporting/records/metrics_log.h"
#include "lockstep/training/reporting/records/pipeline_record.h"
#include "lockstep/training/reporting/records/rank_memory.h"
#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep::apps {

/// A file or folder in the run directory.
struct RunFile {
  std::string name;    ///< relative to its part of the run directory
  uint64_t bytes = 0;  ///< for a folder, the total of its files
};

/// Summary of the files in a run directory.
struct RunSummary {
  std::string folder;
  /// The program that ran and its version; empty if config.json does not say.
  std::string program;
  std::string version;
  std::vector<ConfigurationEntry> configuration = {};
  std::optional<int64_t> planned_epochs = {};
  /// When, where and by which version the run was started, as in metrics.jsonl; none if it does not say.
  std::optional<MetricRow> start = {};
  EpochSummary epochs = EpochSummary();
  int64_t num_steps_logged = 0;
  /// Bytes of memory by what they hold; none if they were not measured.
  std::optional<MetricRow> memory = {};
  /// Of the first of the ranks that were measured.
  std::vector<RankMemory> memory_of_ranks = {};
  /// The step of a pipeline, and how many of its actions can be read; none if it was not measured.
  std::optional<MetricRow> pipeline = {};
  int64_t num_pipeline_actions = 0;
  /// The totals; none if the run has not ended or was killed.
  std::optional<MetricRow> end = {};
  std::optional<std::string> owner = {};  ///< process that owns the directory
  std::vector<RunFile> checkpoints = {};
  std::vector<RunFile> event_files = {};  ///< TensorBoard's files
  std::optional<uint64_t> report_bytes = {};
  std::vector<std::string> missing = {};  ///< names of expected files that are missing
  std::vector<std::string> damages = {};  ///< file, place and problem of each
};

struct SummaryLimits {
  size_t most_entries = 100'000;  ///< of the folders with checkpoints and TensorBoard's files
};

/// Reads whatever is readable in the run directory, and keeps the rows of the last `num_epochs` epochs.
/// Follows no symbolic links in the directory, and reads no more of it than `limits` says. Throws UsageError
/// if `folder` is not a folder, and RunDirectoryError if it contains nothing of a run or cannot be listed.
RunSummary summarise_run(const std::string& folder, size_t num_epochs, const SummaryLimits& limits = {});

/// Reads the run's metrics again, and calls `act` with each of the first `count` epochs.
void for_each_epoch(const std::string& folder, size_t count, const std::function<void(MetricRow)>& act);

/// Returns the plural name of what the run counts as images in its file of metrics: `images`, `rows` for
/// train_ctr, and `tokens` for train_gpt.
std::string examples_of(const RunSummary& summary);

/// Returns the run's status as one word: completed, stopped_early, interrupted or failed as the run recorded
/// it; running if a process owns the directory; otherwise ended_early.
std::string run_status(const RunSummary& summary);

}  // namespace lockstep::apps
