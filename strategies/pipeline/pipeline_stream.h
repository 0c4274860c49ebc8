#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "lockstep/strategies/pipeline/pipeline_runner.h"
#include "lockstep/strategies/pipeline/pipeline_schedule.h"

namespace lockstep {

/// How a pipeline goes forward through one batch after another without draining: a stage begins the next
/// batch while later stages still compute. Every rank gets the results of all batches, which it takes as late
/// as it can without having more batches under way than there are ranks.
struct PipelineStream {
  PipelineSchedule schedule;            ///< of the micro-batches of all batches, numbered throughout
  std::vector<int> last_micro_batches;  ///< of each batch
  /// For each rank, the number of its actions that it does before it takes the result of each batch. The rank
  /// of the last stage takes a result as soon as it is computed, and sends it to all others.
  std::vector<std::vector<size_t>> takes;
};

/// Plans a stream of batches with these numbers of micro-batches. If all stages take equal time and each rank
/// has one, n batches of m micro-batches take n m + p - 1 times that of a stage. Throws InvalidArgument for
/// ranks below 0, and unless there are stages, batches, and at least one micro-batch in each of them.
PipelineStream plan_pipeline_stream(const std::vector<int>& rank_of_stage,
                                    const std::vector<int>& micro_batches);

/// Does the actions of one rank as run_pipeline_rank() does, and calls `take(batch)` when the rank is to take
/// a result. Errors come through.
void run_pipeline_stream_rank(const PipelineStream& stream, int rank, PipelineWork& work,
                              const std::function<void(size_t batch)>& take);

}  // namespace lockstep
