#include "lockstep/apps/plan/plan_text.h"

#include <fmt/format.h>

namespace lockstep::apps {

std::string seconds_of(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.3g} s", seconds);
}

std::string schedule_of(const PlannedLayout& layout) {
  if (layout.pipeline == 1) return "-";
  return layout.schedule == "interleaved" ? fmt::format("{} x{}", layout.schedule, layout.stages_per_rank)
                                          : layout.schedule;
}

std::string placement_text(const PlannedLayout& layout) {
  if (layout.servers == 0) return "on each replica";
  return fmt::format("by rows on {} server{}", layout.servers, layout.servers == 1 ? "" : "s");
}

std::string examples_name(const PlanOptions& options) {
  switch (options.program) {
    case PlannedProgram::kTrainGpt:
      return "sequences";
    case PlannedProgram::kTrainImages:
      return "images";
    case PlannedProgram::kTrainCtr:
      break;
  }
  return "rows";
}

double tokens_per_step(const PlanOptions& options) {
  return static_cast<double>(options.training.global_batch * options.sequence_length);
}

}  // namespace lockstep::apps
