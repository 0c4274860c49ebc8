#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <memory>
#include <vector>

#include "lockstep/apps/train_mnist/options/train_options.h"

namespace lockstep::apps {

using Optimizer = std::unique_ptr<torch::optim::Optimizer>;

/// The fused optimizer that the options ask for.
Optimizer make_optimizer(const TrainOptions& options, double learning_rate,
                         std::vector<torch::Tensor> parameters);

}  // namespace lockstep::apps
