#pragma once

#include <torch/types.h>

#include <cstddef>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/replicas/wait_clock.h"
#include "lockstep/strategies/parallel/internal/stage_parameters.h"

namespace lockstep {

/// The gradients of the parameters of one rank of a pipeline during a pass, added up over its micro-batches.
/// The parameters get them as those of one backward, and sums over replicas begin, when the last stage that
/// uses them has gone backward for the last time.
class StageGradients {
 public:
  /// `parameters` must outlive it.
  StageGradients(const StageParameters& parameters, int num_stages, int micro_batches);

  /// Returns the parameters of a stage.
  std::vector<torch::Tensor> parameters_of(int stage) const;
  /// Adds the gradients of a stage's parameters, undefined for those that it did not use.
  void add(int stage, std::vector<torch::Tensor> gradients);
  /// Call it after each micro-batch of a stage.
  void end_micro_batch(int stage);
  /// Sums up the gradients of parameters that several stages use, over their ranks, and hands on all that
  /// were not yet. `rank` is this one of `ranks`, which are those along the pipeline's axis; null: there is
  /// one. Blocks until the other ranks that share parameters have called it.
  void finish(int rank, const ReplicaBackends* ranks, WaitClock* waits);

 private:
  struct Sum {
    torch::Tensor value;
    bool is_own = false;  ///< whether nothing else can have its memory
    int uses_left = 0;    ///< stages of this rank that have not gone backward for the last time
    const StageParameters::Shared* shared = nullptr;  ///< null: it is in the stages of this rank alone
  };

  void hand_on(size_t number);
  void sum_over_ranks(size_t number, int rank, const ReplicaBackends& ranks);

  const StageParameters& parameters_;
  std::vector<Sum> sums_;            // of StageParameters::own()
  std::vector<int> backwards_left_;  // for each stage
};

}  // namespace lockstep
