#pragma once

#include <cstdint>
#include <string>

namespace lockstep::apps {

/// The schedule and the cut of a model of which the ranks along the axis pipeline have stages.
struct PipelineChoice {
  std::string pipeline_schedule = "1f1b";  ///< see make_pipeline_schedule()
  int64_t stages_per_rank = 2;             ///< of the schedule interleaved
  /// By what stages are about equal: "operations" or "time".
  std::string pipeline_cut = "operations";

  bool operator==(const PipelineChoice&) const = default;
};

}  // namespace lockstep::apps
