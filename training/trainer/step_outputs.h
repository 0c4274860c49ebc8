#pragma once

#include <torch/types.h>

namespace lockstep {

/// What a step computed of one replica's shard, for the loss and the metrics of a Trainer.
struct StepOutputs {
  torch::Tensor losses;   ///< one an example along axis 0, as compute_average_loss() takes them
  torch::Tensor outputs;  ///< what the metrics get; undefined: they are not updated
  torch::Tensor targets;  ///< undefined: the batch has none
};

}  // namespace lockstep
