#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/setting.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/callbacks/record_run.h"
#include "lockstep/training/reporting/records/run_directory.h"
#include "lockstep/training/reporting/records/run_record.h"

namespace lockstep::apps {

/// Returns whether this process is the only one, or worker 0 or the chief of its cluster, which prints and
/// records for all.
bool is_chief_of(const Strategy& strategy);

/// Returns the title of a record, such as "train_images: simple_cnn by MirroredStrategy with 2 replicas".
/// `replicas` is the strategy's description.
std::string record_title(const std::string& program, const std::string& model, const std::string& replicas);

/// Returns whether worker 0 was given `folder` by `flag`. A collective of workers that step together. Throws
/// UsageError on all of them if only others were given a folder.
bool is_given_to_chief(Strategy& strategy, const std::string& flag, const std::string& folder, bool is_chief);

/// Returns the names of the hosts of all workers, each once, worker 0's first. A collective of workers that
/// step together.
std::vector<std::string> hosts_of_workers(Strategy& strategy);

/// Folders that a program's flags name.
struct RecordedFolders {
  std::string run_dir;
  std::string backup_dir;
  std::string resume = "auto";  ///< BackupOptions::resume
  int restart_count = 0;        ///< how often the job was started before
};

/// Returns the folder to record in. If a job is started again, or a training has a backup to resume from, its
/// record gets a new folder, such as runs/a-2, next to the one of its earlier start.
std::string record_folder(const RecordedFolders& folders);

/// Creates the run directory if the run is recorded and this process is the chief. The restart count in
/// `folders` is taken from the cluster. Puts the folder that it chooses, see record_folder(), into `run_dir`.
/// Throws RunDirectoryError as RunDirectory does.
std::optional<RunDirectory> make_run_directory(const Strategy& strategy, bool is_recorded,
                                               RecordedFolders folders, std::string& run_dir);

/// Adds the values of a run's configuration to what its record shows.
void add_settings(const std::vector<Setting>& settings, RecordRunOptions& options);

/// Ends the record of a training that ended without an error. A nonzero `signal` means that it stopped the
/// training, a `stop_reason` that a callback did. Does nothing if `record` is null.
void finish_record(RecordRun* record, const std::string& stop_reason, int signal);

/// Ends the record of a training that an error ended. Logs a failure to do so, in the name of `program`,
/// instead of throwing, because the caller still has to report the training's error. Does nothing if `record`
/// is null.
void fail_record(const std::string& program, RecordRun* record, RunStatus status, const std::string& reason);

}  // namespace lockstep::apps
