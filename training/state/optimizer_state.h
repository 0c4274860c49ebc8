#pragma once

#include <torch/optim/optimizer.h>

#include <string>

#include "lockstep/training/formats/state_file.h"

namespace lockstep {

/// Returns the state that Python's optimizer.state_dict() gives: the options of each group, and the state of
/// each parameter by its index among all. Supports FusedAdam, FusedAdamW, FusedSgd, FusedAdagrad, SparseAdam,
/// and torch::optim's Adam, AdamW, SGD and Adagrad. Python's torch.optim.Adam, AdamW and SGD load it with
/// load_state_dict(). Tensors share the optimizer's memory. Throws InvalidArgument for other optimizers.
StateValue::Dict optimizer_state(const torch::optim::Optimizer& optimizer);

/// Loads such a state, from Lockstep or Python, into an optimizer, including the options: its next step is
/// the one the saved optimizer would have made. `source`, the name of the file, starts error messages.
///
/// Throws CheckpointError if the state is of another kind of optimizer or of other parameters, naming the
/// first part that differs, with both shapes if it is a tensor; the optimizer is unchanged then. Throws
/// InvalidArgument for an optimizer that optimizer_state() does not support.
void load_optimizer_state(torch::optim::Optimizer& optimizer, const StateValue& state,
                          const std::string& source = "optimizer");

}  // namespace lockstep
