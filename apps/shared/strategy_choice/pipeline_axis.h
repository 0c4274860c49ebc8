#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/apps/shared/strategy_choice/pipeline_choice.h"
#include "lockstep/runtime/collectives/mesh.h"
#include "lockstep/strategies/parallel/pipeline_block.h"

namespace lockstep::apps {

inline constexpr const char* kPipelineAxis = "pipeline";

/// Returns the axis of the mesh whose ranks have the stages of a pipeline: "pipeline". Empty if it has none
/// of several ranks.
std::string axis_of_pipeline(const Mesh& mesh);

/// Returns the number of ranks along an axis; 1 if the mesh does not have it.
int64_t ranks_along(const Mesh& mesh, const std::string& name);

/// Throws UsageError for an axis of several ranks with this role whose name is none of the given ones.
/// `expected` completes the message.
void refuse_other_axes(const Mesh& mesh, AxisRole role, const std::vector<std::string>& names,
                       const std::string& expected);

/// Returns the stages of a model along the axis pipeline of the mesh, which has one.
int64_t num_stages(const Mesh& mesh, const PipelineChoice& choice);

/// A replica's share of a step.
struct StepShare {
  int64_t largest = 1;        ///< examples of the replica that has most
  int64_t micro_batches = 0;  ///< that flags ask for; 0: none do
};

/// Returns the micro-batches of a replica's share: four times as many as there are ranks along the axis
/// pipeline, or as many as there are examples, unless flags ask for others. The schedule interleaved gets a
/// multiple of the ranks.
int64_t micro_batches_of_stages(const Mesh& mesh, const PipelineChoice& choice, const StepShare& share);

/// Returns the options of a Pipeline along that axis whose blocks have these costs.
PipelineOptions pipeline_options(const PipelineChoice& choice, int64_t micro_batches,
                                 std::vector<double> costs);

/// Throws UsageError for a flag, or several, that do not go together with stages; `expected` is a value that
/// does.
[[noreturn]] void refuse_with_stages(const Mesh& mesh, const std::string& given, const std::string& expected);

/// Throws UsageError if flags choose a schedule or a cut and the mesh has no axis pipeline.
void refuse_schedule_without_stages(const Mesh& mesh, const PipelineChoice& choice);

}  // namespace lockstep::apps
