#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>

namespace lockstep {

/// The share of the first learning rate that step `step` (from 0) of `num_steps` takes: half a cosine, 1 at
/// step 0 and falling towards 0, which it reaches at `num_steps` and keeps (Loshchilov and Hutter, "SGDR:
/// Stochastic Gradient Descent with Warm Restarts", 2016, equation 5 without restarts and down to 0).
/// Throws InvalidArgument for a negative step and for less than one step in all.
double cosine_decay(int64_t step, int64_t num_steps);

/// Gives every parameter group this learning rate, from the optimizer's next step on. Replicas stay equal
/// only where each replica's optimizer is given the same one.
void set_learning_rate(torch::optim::Optimizer& optimizer, double learning_rate);

}  // namespace lockstep
