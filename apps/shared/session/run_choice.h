#pragma once

#include <cstdint>
#include <string>

#include "lockstep/apps/shared/monitoring/metrics_choice.h"
#include "lockstep/training/state/not_finite.h"

namespace lockstep::apps {

/// The records, checks and backups of a program that trains by a Trainer. run_flags() explains the fields.
struct RunChoice : MetricsChoice {
  bool quiet = false;  ///< print only errors

  std::string run_dir;        ///< folder for the record of the run; empty: none
  int64_t log_every = 10;     ///< record every so many steps
  int64_t profile = 0;        ///< number of steps to profile
  bool fast_dev_run = false;  ///< a few steps of everything, which leave nothing behind but run_dir

  int64_t check_replicas = 1000;  ///< steps between bitwise comparisons of the replicas; 0: none
  NotFiniteAction on_not_finite = NotFiniteAction::kStop;

  std::string backup_dir;            ///< folder for saved training states; empty: none
  std::string save_every = "epoch";  ///< as SaveInterval::parse() reads it
  bool shard_backup = false;         ///< each worker writes a part: BackupOptions::sharded
  std::string resume = "auto";       ///< auto, never, or a path: BackupOptions::resume
  int retryable_exit_code = 0;       ///< of failures that another start may mend; 0: none

  bool operator==(const RunChoice&) const = default;
};

}  // namespace lockstep::apps
