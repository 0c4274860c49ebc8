#pragma once

#include <torch/optim/optimizer.h>

#include <string>

#include "lockstep/training/formats/state_file.h"

namespace lockstep {

/// What Python's optimizer.state_dict() gives, for FusedAdam, FusedAdamW and FusedSgd and for torch::optim's
/// Adam, AdamW and SGD: the options of each group and what is remembered of each parameter, by its place
/// among all. Python's torch.optim.Adam, AdamW and SGD take it by load_state_dict(). Tensors share the
/// optimizer's memory. Throws InvalidArgument for other optimizers.
StateValue::Dict optimizer_state(const torch::optim::Optimizer& optimizer);

/// Continues from such a state, Lockstep's or Python's: the next step is the one that the other optimizer
/// would do. Options come from the state as well. `source`, its file, begins error messages.
///
/// Throws CheckpointError naming the first part that differs, with both shapes where it is a tensor, for the
/// state of another kind of optimizer, or of other parameters; nothing is changed then. Throws
/// InvalidArgument for optimizers that optimizer_state() does not take.
void load_optimizer_state(torch::optim::Optimizer& optimizer, const StateValue& state,
                          const std::string& source = "optimizer");

}  // namespace lockstep
