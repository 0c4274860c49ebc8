#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// A step of one rank of a pipeline.
enum class PipelineOp : uint8_t {
  kForward,
  kBackward,           ///< Both halves of backward at once.
  kBackwardInputs,     ///< The half that computes the gradients of a stage's inputs, which the stage before
                       ///< waits for.
  kBackwardWeights,    ///< The other half: the gradients of the stage's parameters, which nobody waits for.
  kSendActivation,     ///< The result of the stage's forward, to the stage after it.
  kReceiveActivation,  ///< From the stage before it.
  kSendGradient,       ///< Of the stage's inputs, to the stage before it.
  kReceiveGradient,    ///< Of the stage's result, from the stage after it.
};

/// One step, of one stage for one micro-batch.
struct PipelineAction {
  PipelineOp op = PipelineOp::kForward;
  int stage = 0;
  int micro_batch = 0;

  bool operator==(const PipelineAction&) const = default;
};

/// Returns such as "forward of stage 1 for micro-batch 3".
std::string describe(const PipelineAction& action);

/// The order in which the ranks of a pipeline compute. A model is cut into stages, and a batch into
/// micro-batches; every stage reads what the one before it computed. Ranks do their actions one after the
/// other.
///
/// A schedule is data: change it, or write your own. check_pipeline_schedule() proves that it can run, and
/// simulate_pipeline() predicts its time.
///
/// Example:
///
///     const auto schedule = one_forward_one_backward_schedule(4, 8);
///     check_pipeline_schedule(schedule).most_alive;                       // {4, 3, 2, 1}
///     simulate_pipeline(schedule, uniform_pipeline_times(schedule, 1, 2)).bubble();  // 3 / 11
struct PipelineSchedule {
  std::string name;
  int num_micro_batches = 0;
  std::vector<int> rank_of_stage;                    ///< Stages in order, numbers of ranks from 0.
  std::vector<std::vector<PipelineAction>> actions;  ///< Of each rank, in order.

  int num_stages() const { return static_cast<int>(rank_of_stage.size()); }
  int num_ranks() const { return static_cast<int>(actions.size()); }
  bool operator==(const PipelineSchedule&) const = default;
};

// All of these throw InvalidArgument if there are fewer ranks or micro-batches than 1.

/// Returns the schedule in which all micro-batches go forward before the first goes backward (Huang et al.,
/// "GPipe", 2019). Each rank keeps the activations of all micro-batches.
PipelineSchedule gpipe_schedule(int ranks, int micro_batches);

/// Returns the schedule in which a rank goes backward as soon as it can, so that rank r keeps the activations
/// of at most ranks - r micro-batches (Narayanan et al., "PipeDream", 2019). It takes as long as GPipe's.
PipelineSchedule one_forward_one_backward_schedule(int ranks, int micro_batches);

/// Returns the same with several stages on each rank, stage s on rank s % ranks, which divides the time that
/// ranks wait by their number (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
/// Clusters Using Megatron-LM", 2021). Throws InvalidArgument with numbers that would do if the ranks do not
/// divide the micro-batches.
PipelineSchedule interleaved_schedule(int ranks, int stages_per_rank, int micro_batches);

/// Returns ZB-H1 (Qi et al., "Zero Bubble Pipeline Parallelism", 2023): backward is in two halves, and the
/// weights' half fills the time in which ranks would wait. If forward and both halves take equal time, ranks
/// wait a third as long as in one_forward_one_backward_schedule(). Each rank keeps the activations of at most
/// `ranks` micro-batches.
PipelineSchedule zero_bubble_schedule(int ranks, int micro_batches);

/// Returns ZB-V (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024): rank r has the stages r
/// and 2 * ranks - 1 - r. If forward and both halves of backward take equal time and there are at least
/// 2 * ranks - 1 micro-batches, no rank waits once it has begun. Each rank keeps the activations of at most
/// 2 * ranks pairs of its half-sized stages and micro-batches: as much memory as in zero_bubble_schedule().
PipelineSchedule zero_bubble_v_schedule(int ranks, int micro_batches);

/// Returns the schedule of a pipeline that only goes forward, for evaluation and prediction.
PipelineSchedule forward_schedule(std::vector<int> rank_of_stage, int micro_batches);

/// Returns the schedule with these names of flags: gpipe, 1f1b, interleaved, zb-h1 or zb-v. `stages_per_rank`
/// is that of interleaved. Throws InvalidArgument for another name.
PipelineSchedule make_pipeline_schedule(const std::string& name, int ranks, int micro_batches,
                                        int stages_per_rank = 2);

/// Returns the schedule with a send after each computation whose result another rank needs, and a receive
/// before each that needs another rank's, so that an order of your own needs computations only.
PipelineSchedule with_transfers(PipelineSchedule computations);

}  // namespace lockstep
