#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/apps/shared/monitoring/input_profile.h"
#include "lockstep/datasets/stores/read_times.h"
#include "lockstep/strategies/input/input_times.h"

namespace lockstep::apps {

/// The values of ReadTimes at a moment, or between two.
struct ReadTotals {
  double store = 0;  ///< seconds, like the next two fields
  double decode = 0;
  double wait = 0;
  int64_t store_bytes = 0;
  int64_t rows = 0;
  int64_t bytes = 0;

  void add(const ReadTimes& times, int sign = 1);
};

/// Returns the profile of click logs, whose `reads` are of Parquet files; none if they are of others.
InputProfile ctr_input_profile(const InputTimes& times, const std::optional<ReadTotals>& reads,
                               const TrainedSteps& steps);

}  // namespace lockstep::apps
