#pragma once

#include <string>

#include "lockstep/benchmarks/loops/workload.h"

namespace lockstep::benchmarks {

struct BackupJobOptions {
  Workload workload;
  std::string folder;  ///< where checkpoints lie
  int steps = 0;       ///< of the training, or of a block
  int save_every = 0;  ///< steps between checkpoints
  int blocks = 0;      ///< of each kind of saving that are measured; 0: it trains
};

/// Throws what cxxopts does, naming the flag.
BackupJobOptions parse_backup_job(int argc, char** argv);

}  // namespace lockstep::benchmarks
