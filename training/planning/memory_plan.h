#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/bucket_options.h"
#include "lockstep/training/planning/recorded_step.h"

namespace lockstep {

/// Optimizers by what they keep for each element of a parameter.
enum class PlannedOptimizer : uint8_t {
  kSgd,       ///< nothing
  kMomentum,  ///< SGD with momentum: one value
  kAdam,      ///< two values
  kAdamW,     ///< two values
};

/// How the ranks along an axis of stages divide a recorded model; see PipelineOptions, whose names these are.
struct PlannedPipeline {
  int ranks = 1;                  ///< along the axis; 1: all blocks are on one rank, without a schedule
  std::string schedule = "1f1b";  ///< see make_pipeline_schedule()
  int stages_per_rank = 2;        ///< of the schedule "interleaved"
  /// The record's calls with which the pipeline's blocks begin; see RecordedStep::pipeline_blocks(). Empty:
  /// each call is a block.
  std::vector<size_t> blocks{};
  /// The first block of each stage but the first. Empty: the largest cost of a stage is as small as possible.
  std::vector<size_t> cuts{};
  std::vector<double> costs{};  ///< of each block; empty: the bytes of its parameters
};

/// How a training is laid out over ranks. Axes along which layers, sequences or experts are cut are in the
/// record: it is that of a rank of the cut model (see ModuleRecorder).
struct TrainingLayout {
  int64_t replicas = 1;  ///< that divide parameters and state among them, if these are sharded
  /// Groups of `replicas` ranks that hold the same and sum their gradients, such as along a second axis of
  /// data or a context axis.
  int64_t copies = 1;
  /// Of `replicas`, how many are threads of one process; 0: all of them.
  int64_t replicas_per_process = 0;
  /// Of the sharding over the replicas; see ShardingOptions. In stage 3, each block of the record that has
  /// parameters is a unit.
  int stage = 0;
  int64_t examples = 1;  ///< of a replica in each micro-batch
  /// Whose gradients a step sums: those of the pipeline, or else of ReplicaContext::accumulate().
  int64_t micro_batches = 1;
  std::vector<size_t> recomputed{};  ///< numbers of the blocks that recompute() calls
  PlannedOptimizer optimizer = PlannedOptimizer::kAdam;
  BucketOptions buckets{};
  /// Bytes of an element in which gradients of longer elements are summed; 0: their own.
  int64_t summed_element_bytes = 0;
  bool overlaps_units = true;  ///< see UnitOptions::overlap
  /// The allocator's sizes are multiples of it: 1 for LibTorch's CPU allocator, 512 for CUDA's.
  int64_t allocation_unit = 1;
  PlannedPipeline pipeline{};
};

/// The memory of a replica when it needs most in a step, in bytes by what it holds.
struct MemoryPlan {
  int64_t parameters = 0;
  int64_t buffers = 0;  ///< of the model, such as running statistics
  int64_t inputs = 0;   ///< one micro-batch
  int64_t optimizer_state = 0;
  int64_t gradients = 0;       ///< that are kept until the step, and on their way to a bucket or unit
  int64_t activations = 0;     ///< kept for backward, and what operators need while they run
  int64_t buckets = 0;         ///< besides gradients that are kept
  int64_t gathered_units = 0;  ///< whole parameters of units, this replica's share
  int64_t communication = 0;   ///< values on their way between ranks
  int64_t allocator = 0;       ///< by which the allocator rounds sizes up

  int64_t peak() const {
    return parameters + buffers + inputs + optimizer_state + gradients + activations + buckets +
           gathered_units + communication + allocator;
  }
};

/// Predicts the memory of a step of a recorded model in a layout, from the third step on: arithmetic on the
/// record, which takes microseconds to milliseconds. It follows the record's allocations with the layout's
/// number of examples, and what the layout makes of them: blocks that are computed again, gradients that go
/// to buckets, units that are gathered and freed. Parameters, gradients and state that stay are those of
/// predict_memory().
///
/// Not counted are batches that are loaded ahead, and memory that LibTorch's allocator does not know of, such
/// as that of threads.
///
/// Throws InvalidArgument for a stage outside of 0 to 3, a block that is not in the record, and numbers below
/// 1.
///
/// Example:
///
///     const auto plan = plan_memory(record, {.replicas = 2, .stage = 1, .examples = 32});
///     std::cout << plan.peak() << " bytes, of which " << plan.activations << " are activations\n";
MemoryPlan plan_memory(const RecordedStep& record, const TrainingLayout& layout);

/// Returns the same for each rank along the axis of stages, of which plan_memory() returns the one that needs
/// most. Throws as plan_memory().
std::vector<MemoryPlan> plan_memory_of_ranks(const RecordedStep& record, const TrainingLayout& layout);

}  // namespace lockstep
