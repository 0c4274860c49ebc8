#pragma once

#include <torch/types.h>

namespace lockstep {

/// Results of a step on one replica's shard, for the loss and the metrics of a Trainer.
struct StepOutputs {
  /// One for each example along axis 0, as for compute_average_loss(): along context axes, of this rank's
  /// tokens alone.
  torch::Tensor losses;
  torch::Tensor outputs;  ///< Input of the metrics; if undefined, they are not updated.
  torch::Tensor targets;  ///< Undefined if the batch has none.
};

}  // namespace lockstep
