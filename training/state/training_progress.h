#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

/// Progress of a run.
struct TrainingProgress {
  int64_t epoch = 0;  ///< Epochs finished.
  int64_t step = 0;   ///< Steps finished in all epochs.
  /// Position of the next batch: the dataset's epoch, which differs from the run's if steps_per_epoch cuts
  /// the run into epochs, and in `position` the global batches of it that were trained on.
  int64_t dataset_epoch = 0;
  int64_t position = 0;
  int64_t shuffle_seed = 0;
  std::map<std::string, double> metrics;  ///< Numbers that the caller wants to keep, by name.
};

}  // namespace lockstep
