#pragma once

#include <string>

#include "lockstep/apps/train_gpt/options/gpt_plan.h"
#include "lockstep/apps/train_gpt/options/gpt_train_options.h"
#include "lockstep/models/gpt/gpt_options.h"
#include "lockstep/runtime/collectives/mesh.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep::apps {

/// Returns the axis of the mesh along which models are cut: "tensor". Empty if it has none of several ranks.
std::string axis_of_parts(const Mesh& mesh);

/// Decides the micro-batches of a model that is cut into stages, if --micro-batch-size does not: four times
/// as many as there are ranks, or as many as a replica has sequences. Throws UsageError with what would do if
/// the model has too few layers for the stages, and for flags that do not go together with stages, or have no
/// effect without.
void plan_pipeline(const Strategy& strategy, const GptTrainOptions& options, GptPlan& plan);

/// Returns the axis of the mesh along which ranks share experts: "expert". Empty if it has none of several
/// ranks.
std::string axis_of_experts(const Mesh& mesh);

/// Throws UsageError if the mesh has an axis for experts and the model none, if the axis's ranks do not
/// divide the experts, with numbers that would do, for a stage of --sharding that does not go together with
/// it, and for experts in a model whose sequences are cut.
void check_experts(const Strategy& strategy, const GptOptions& model);

/// Returns the axis of the mesh along which sequences are cut: that with the role, such as "context". Empty
/// if it has none of several ranks.
std::string axis_of_tokens(const Mesh& mesh);

/// Throws UsageError if a model cannot be cut for the mesh: with the flag of a size that the ranks along the
/// axis do not divide and sizes that would do, for another axis along which models or sequences are cut, and
/// for --dropout if sequences are.
void check_axes(const Mesh& mesh, const GptTrainOptions& options, const BaseModel& base,
                const GptOptions& model);

/// Throws UsageError if --sequence-parallel is given and the mesh has no axis along which the model is cut,
/// or its ranks do not divide the length of sequences, or of each rank's part of them along a context axis.
void check_sequence_parallel(const Mesh& mesh, const GptTrainOptions& options, int64_t sequence_length);

}  // namespace lockstep::apps
