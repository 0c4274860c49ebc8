#pragma once

#include <torch/optim/optimizer.h>

#include <string>
#include <vector>

#include "lockstep/runtime/replicas/internal/parameter_directory.h"

namespace lockstep {

/// Describes what must be the same on all workers: the optimizer's class and, for each group, its options and
/// its parameters by their names in `directory`. The order of parameters matters because gradients are summed
/// by it. Of options that cannot be serialized, only the learning rate is included.
std::vector<std::string> describe_optimizer(const torch::optim::Optimizer& optimizer,
                                            const ParameterDirectory& directory);

}  // namespace lockstep
