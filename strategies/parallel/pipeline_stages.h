#pragma once

#include <c10/core/ScalarType.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/runtime/replicas/replica_axis.h"
#include "lockstep/runtime/replicas/replica_collectives.h"
#include "lockstep/runtime/replicas/replica_context.h"
#include "lockstep/strategies/parallel/pipeline_block.h"
#include "lockstep/strategies/pipeline/pipeline_stream.h"
#include "lockstep/strategies/pipeline/pipeline_timeline.h"

namespace lockstep {

class PipelineShapes;
class StageParameters;

/// The losses of a pipeline, and the way backward through them.
struct PipelinePass {
  /// Returns the losses of a micro-batch's examples, [n] or [n, ...], from the last block's result and the
  /// rows of the target that belong to it. Called on the rank of the last stage.
  std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)> losses;
  at::ScalarType autocast = torch::kFloat;  ///< See AutocastGuard.
  GradScaler* scaler = nullptr;             ///< Scales the losses. Null: they are not scaled.
  bool returns_outputs = true;              ///< Whether PipelineResult has outputs.
};

/// Values of a replica's whole shard, without gradients.
struct PipelineResult {
  torch::Tensor losses;   ///< of each example
  torch::Tensor outputs;  ///< of the last block; undefined unless asked for
};

/// Returns for each of `num_blocks` blocks whether it belongs to a stage of this rank, so that a model can be
/// made without memory for the others. The options must have costs or cuts, as bytes are not known yet.
/// Throws InvalidArgument otherwise, and as PipelineStages does.
std::vector<bool> blocks_of_rank(const ReplicaAxis& axis, const PipelineOptions& options, size_t num_blocks);

/// The blocks of a model, of which each rank along an axis of the mesh has some consecutive ones: a stage, or
/// several. All ranks of a replica call the same functions with the same shard of the batch, which is cut
/// into micro-batches; a schedule says in which order each rank computes them.
///
/// This is what models are made of that consist of blocks (see Pipeline for a list of modules). The rank of a
/// stage keeps its parameters. On the other ranks they are empty: sharded_parameter_of() says of what. Names,
/// initial values and checkpoints are those of the whole model, and so are gradients, if no block depends on
/// the other examples of the batch. BatchNorm uses the statistics of a micro-batch.
///
/// Random numbers that blocks draw in training depend on the replica's random state, the block and the
/// micro-batch alone, and not on stages, ranks and schedules.
///
/// Example:
///
///     // In the constructor of a module, in a scope's factory:
///     stages_ = std::make_unique<PipelineStages>(replica.axis("pipeline"), blocks, options);
///     // In a run:
///     stages_->forward_backward(replica, shard.data, shard.target, {.losses = losses});
///     replica.apply_gradients(optimizer);
class PipelineStages {
 public:
  /// Frees the parameters of blocks that this rank does not have. Call it with the same blocks on all ranks.
  /// Throws InvalidArgument for an axis of several ranks along which models are not cut, for more stages than
  /// blocks, for options out of range, as check_pipeline_schedule() does, and naming a parameter that cannot
  /// be freed.
  PipelineStages(const ReplicaAxis& axis, std::vector<PipelineBlock> blocks, PipelineOptions options);
  ~PipelineStages();
  PipelineStages(const PipelineStages&) = delete;
  PipelineStages& operator=(const PipelineStages&) = delete;

  /// Takes the collectives of the replica. Throws InvalidArgument if it has another place on the axis.
  void bind(std::shared_ptr<const ReplicaCollectives> replica);
  /// Call it after the blocks' modules were moved to another device or dtype.
  void moved();

  /// Returns the schedule of training.
  const PipelineSchedule& schedule() const { return schedule_; }
  /// Returns the first block of each stage.
  const std::vector<size_t>& first_blocks() const { return firsts_; }
  /// Returns the rank along the axis that has a block.
  int rank_of_block(size_t block) const;

  /// Computes the losses of the shard, their sum as compute_average_loss() has it, and backward. Adds to the
  /// gradients of the parameters of this rank's stages, as one backward() would; sums over replicas begin
  /// meanwhile. Returns the same on all ranks of the axis. Blocks until all ranks have computed their parts.
  ///
  /// `input` and `target` have the examples along axis 0. A result of a stage may depend on the micro-batch's
  /// size in its shape, and on nothing else of the batch.
  ///
  /// Throws InvalidArgument outside of a run, and without gradients (torch::NoGradGuard). Errors of blocks
  /// name the stage and the micro-batch.
  ///
  /// On CPUs, a rank that computes while others on its machine wait uses their cores, too: as planned from
  /// the schedule, so that equal trainings have equal results. Ranks do not if the user has set their number
  /// of threads, by StrategyOptions::intra_op_threads or OMP_NUM_THREADS.
  PipelineResult forward_backward(ReplicaContext& replica, const torch::Tensor& input,
                                  const torch::Tensor& target, const PipelinePass& pass);

  /// Returns the last block's result, without gradients, the same on all ranks of the axis. If layers train,
  /// stages compute all examples at once. Blocks until all ranks have computed their parts.
  torch::Tensor forward(const torch::Tensor& input);
  /// Returns what `finish` computes on the rank of the last stage from the last block's results, for a
  /// micro-batch at a time, and the rows of `target` that belong to it, if it is defined. Otherwise like
  /// forward().
  torch::Tensor forward(
      const torch::Tensor& input, const torch::Tensor& target,
      const std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)>& finish);
  /// Calls other functions than those of the blocks, one for each, with all examples at once. Each is called
  /// on the rank of its block alone, and may use that block's parameters. Otherwise like forward().
  torch::Tensor forward_by(const std::vector<std::function<torch::Tensor(const torch::Tensor&)>>& functions,
                           const torch::Tensor& input);

  /// Calls `take` with the result of each batch and its place in `inputs`, in order and on all ranks of the
  /// axis. The results are those of forward(), bit for bit. Stages begin a batch while later stages still
  /// compute the ones before it, so that ranks wait once, and not for each batch. At most as many batches as
  /// ranks along the axis are under way. If layers train, one batch follows another. Blocks until all results
  /// are taken.
  ///
  /// `take` must not communicate along the axis, whose ranks call it at different times. Errors of blocks
  /// name the stage, the micro-batch and the batch.
  void stream(const PipelineInputs& inputs,
              const std::function<void(size_t batch, const torch::Tensor& result)>& take);

  /// Has each later forward_backward() begin on all ranks of the axis at the same moment, and note when each
  /// rank does what.
  void record_times(bool on) { records_times_ = on; }
  /// Returns the times of the last recorded forward_backward(), of all ranks. A collective of the axis. Ranks
  /// on other machines count from the moment at which they began, with the error of their waits.
  PipelineTimeline gather_times();

 private:
  class Work;
  using BlockFunctions = std::vector<std::function<torch::Tensor(const torch::Tensor&)>>;

  bool is_training() const;
  int num_ranks() const { return position_.size; }
  ReplicaBackends backends() const;
  /// Returns the stage's first block; the number of blocks after the last stage.
  size_t begin_of_stage(int stage) const;
  const PipelineSchedule& forward_schedule_of(int micro_batches);
  int micro_batches_of(const torch::Tensor& input) const;
  torch::Tensor run_forward(const PipelineSchedule& schedule, const torch::Tensor& input,
                            const torch::Tensor& target, const PipelinePass& pass,
                            const BlockFunctions* functions = nullptr);
  const std::vector<int>& threads_of_actions();
  void share_buffers() const;
  torch::Tensor from_last_stage(const torch::Tensor& own, torch::Device device) const;

  AxisPosition position_;
  std::vector<PipelineBlock> blocks_;
  PipelineOptions options_;
  PipelineSchedule schedule_;
  std::map<int, PipelineSchedule> forward_schedules_;  // by their numbers of micro-batches
  std::vector<int> streamed_;  // numbers of micro-batches of the last stream's batches
  PipelineStream stream_;      // its plan
  std::vector<size_t> firsts_;
  std::unique_ptr<StageParameters> parameters_;
  std::shared_ptr<const ReplicaCollectives> replica_;
  std::shared_ptr<PipelineShapes> shapes_;
  std::optional<std::vector<int>> threads_;  // of each of this rank's actions in training; empty: the same
  bool records_times_ = false;
  std::vector<TimedPipelineAction> times_;
};

}  // namespace lockstep
