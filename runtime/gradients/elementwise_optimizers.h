#pragma once

#include <torch/optim/optimizer.h>

namespace lockstep {

/// Returns true for torch::optim's SGD, Adam, AdamW, Adagrad and RMSprop, but not for classes that derive
/// from them, and for an ElementwiseStep that says so.
bool is_elementwise(const torch::optim::Optimizer& optimizer);

/// Throws InvalidArgument naming the optimizer's class, and the way out, unless it is elementwise.
void check_elementwise(const torch::optim::Optimizer& optimizer);

}  // namespace lockstep
