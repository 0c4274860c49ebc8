#pragma once

#include <torch/optim/optimizer.h>

#include <string>
#include <vector>

#include "lockstep/runtime/replicas/internal/parameter_directory.h"

namespace lockstep {

/// What has to be the same on all workers: the optimizer's class, and of each group its options and its
/// parameters, by the names that `directory` knows, since gradients are summed by their order. Of options
/// that cannot be saved only the learning rate.
std::vector<std::string> describe_optimizer(const torch::optim::Optimizer& optimizer,
                                            const ParameterDirectory& directory);

}  // namespace lockstep
