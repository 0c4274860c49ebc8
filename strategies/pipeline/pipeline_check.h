#pragma once

#include <vector>

#include "lockstep/strategies/pipeline/pipeline_schedule.h"

namespace lockstep {

struct PipelineCheckOptions {
  /// Activations, and likewise gradients, that wait between two stages at most: a rank that sends one more
  /// waits until the other has received one.
  int buffers = 2;
};

/// Properties of a schedule that can run.
struct PipelineCheck {
  /// Of each rank, the most pairs of a stage and a micro-batch whose activations it keeps at the same time:
  /// from the beginning of forward to the end of backward. All 0 in a schedule without backward.
  std::vector<int> most_alive;
};

/// Proves that a schedule can run, however fast its ranks are: each stage goes forward and backward once for
/// each micro-batch (or forward only, all of them), on its own rank and in an order in which inputs are there
/// before they are used; and no ranks wait for each other in a circle.
///
/// Throws InvalidArgument if it cannot, naming the stage and the micro-batch, or the ranks of the circle and
/// what each waits for.
PipelineCheck check_pipeline_schedule(const PipelineSchedule& schedule,
                                      const PipelineCheckOptions& options = {});

}  // namespace lockstep
