#include "lockstep/apps/shared/strategy_choice/pipeline_axis.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

bool is_interleaved(const PipelineChoice& choice) {
  return choice.pipeline_schedule == "interleaved";
}

}  // namespace

std::string axis_of_pipeline(const Mesh& mesh) {
  for (const auto& axis : mesh.axes())
    if (axis.name == kPipelineAxis && axis.role == AxisRole::kModel && axis.size > 1) return axis.name;
  return "";
}

int64_t ranks_along(const Mesh& mesh, const std::string& name) {
  for (const auto& axis : mesh.axes())
    if (axis.name == name) return axis.size;
  return 1;
}

void refuse_other_axes(const Mesh& mesh, AxisRole role, const std::vector<std::string>& names,
                       const std::string& expected) {
  for (const auto& axis : mesh.axes()) {
    if (axis.role != role || axis.size == 1) continue;
    if (std::find(names.begin(), names.end(), axis.name) != names.end()) continue;
    throw UsageError(c10::str("--mesh ", mesh.str(), ": expected ", expected, ", but got ", axis.name));
  }
}

int64_t num_stages(const Mesh& mesh, const PipelineChoice& choice) {
  const int64_t per_rank =
      is_interleaved(choice) ? choice.stages_per_rank : (choice.pipeline_schedule == "zb-v" ? 2 : 1);
  return ranks_along(mesh, kPipelineAxis) * per_rank;
}

int64_t micro_batches_of_stages(const Mesh& mesh, const PipelineChoice& choice, const StepShare& share) {
  const int64_t ranks = ranks_along(mesh, kPipelineAxis);
  const int64_t count =
      share.micro_batches > 0 ? share.micro_batches : std::clamp<int64_t>(share.largest, 1, 4 * ranks);
  // Ranks take turns of as many micro-batches as there are ranks; some may then be empty.
  return is_interleaved(choice) ? (count + ranks - 1) / ranks * ranks : count;
}

PipelineOptions pipeline_options(const PipelineChoice& choice, int64_t micro_batches,
                                 std::vector<double> costs) {
  return {.schedule = choice.pipeline_schedule,
          .micro_batches = static_cast<int>(micro_batches),
          .stages_per_rank = static_cast<int>(choice.stages_per_rank),
          .costs = std::move(costs)};
}

void refuse_with_stages(const Mesh& mesh, const std::string& given, const std::string& expected) {
  throw UsageError(c10::str(given, ": expected ", expected, " with the axis ", kPipelineAxis, " of --mesh ",
                            mesh.str(), ", whose ranks have stages of the model"));
}

void refuse_schedule_without_stages(const Mesh& mesh, const PipelineChoice& choice) {
  const PipelineChoice defaults;
  const auto refuse = [&](const char* flag, const std::string& value) {
    throw UsageError(c10::str(flag, value, ": expected a --mesh with several ranks along the axis ",
                              kPipelineAxis, ", but got ", mesh.str()));
  };
  if (choice.pipeline_schedule != defaults.pipeline_schedule)
    refuse("--pipeline-schedule ", choice.pipeline_schedule);
  if (choice.pipeline_cut != defaults.pipeline_cut) refuse("--pipeline-cut ", choice.pipeline_cut);
}

}  // namespace lockstep::apps
