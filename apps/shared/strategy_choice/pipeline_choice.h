#pragma once

#include <cstdint>
#include <string>

namespace lockstep::apps {

/// How the stages of a model that the ranks along the axis pipeline have are computed.
struct PipelineChoice {
  std::string pipeline_schedule = "1f1b";  ///< see make_pipeline_schedule()
  int64_t stages_per_rank = 2;             ///< of the schedule interleaved

  bool operator==(const PipelineChoice&) const = default;
};

}  // namespace lockstep::apps
