#pragma once

#include <c10/core/ScalarType.h>

#include <vector>

#include "lockstep/apps/train_mnist/options/train_options.h"
#include "lockstep/runtime/devices/device.h"

namespace lockstep::apps {

/// What ReplicaContext::autocast takes for it; float32, which casts nothing, where nothing is to be cast.
c10::ScalarType autocast_dtype(PrecisionKind precision);

/// What the model's parameters and the images are in.
c10::ScalarType parameter_dtype(PrecisionKind precision);

/// Whether its range is so short that losses have to be scaled.
bool needs_loss_scaling(PrecisionKind precision);

/// Throws UsageError naming the flag and the device where one of `devices` cannot compute in it.
void check_precision(PrecisionKind precision, const std::vector<LogicalDevice>& devices);

/// The same for --cuda-graph, where one of the devices has none.
void check_cuda_graph(const std::vector<LogicalDevice>& devices);

}  // namespace lockstep::apps
