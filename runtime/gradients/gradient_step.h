#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <functional>

#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/runtime/replicas/replica_context.h"

namespace lockstep {

/// Ends a step of replica `replica` of this process, once its gradients are reduced: unscales and clips them
/// as `options` ask, and calls `take_step`, or the optimizer's own step if that is null. Returns the norm
/// before clipping, undefined without a `clip_norm`. If the optimizer's state is sharded, steps this
/// replica's part of it, and blocks until the parameters have come together. If it is kept on the host,
/// blocks as HostOptimizerState::step() does. Throws as GradScaler::step() and clip_gradients() do.
at::Tensor clip_and_step(OptimizerGroup& group, int replica, torch::optim::Optimizer& optimizer,
                         const ApplyOptions& options, const std::function<void()>& take_step = {});

}  // namespace lockstep
