#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <memory>
#include <vector>

#include "lockstep/apps/train_images/options/train_options.h"

namespace lockstep::apps {

using Optimizer = std::unique_ptr<torch::optim::Optimizer>;

/// Creates the fused optimizer that the options select.
Optimizer make_optimizer(const TrainOptions& options, double learning_rate,
                         std::vector<torch::Tensor> parameters);

}  // namespace lockstep::apps
