#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

/// How far a run has come.
struct TrainingProgress {
  int64_t epoch = 0;  ///< epochs finished
  int64_t step = 0;   ///< steps finished, of all epochs
  /// Where the next batch is: the dataset's epoch, which is not the run's where that is cut by steps, and the
  /// global batches of it that were trained on.
  int64_t dataset_epoch = 0;
  int64_t position = 0;
  int64_t shuffle_seed = 0;
  std::map<std::string, double> metrics;  ///< by name, what a caller wants to remember
};

}  // namespace lockstep
