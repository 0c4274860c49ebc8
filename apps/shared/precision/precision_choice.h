#pragma once

#include <c10/core/ScalarType.h>

#include <vector>

#include "lockstep/apps/shared/precision/precision_kind.h"
#include "lockstep/runtime/devices/device.h"
#include "lockstep/runtime/precision/tf32.h"

namespace lockstep::apps {

/// Returns the dtype for ReplicaContext::autocast; float32, which casts nothing, if nothing is to be cast.
c10::ScalarType autocast_dtype(PrecisionKind precision);

/// Returns which operations on GPUs may use TF32: convolutions only, unless the precision says otherwise.
Tf32Use tf32_use(PrecisionKind precision);

/// Returns the dtype of the model's parameters and the images.
c10::ScalarType parameter_dtype(PrecisionKind precision);

/// Returns whether the precision's range is so small that losses must be scaled.
bool needs_loss_scaling(PrecisionKind precision);

/// Throws UsageError naming the flag and the device if one of `devices` does not support the precision.
void check_precision(PrecisionKind precision, const std::vector<LogicalDevice>& devices);

/// Returns whether cuDNN measures its convolution algorithms: if asked for, and if `devices` are not several
/// GPUs, see CudnnBenchmarkGuard.
bool measures_convolutions(bool is_asked_for, const std::vector<LogicalDevice>& devices);

/// Throws UsageError if one of `devices` does not support --cuda-graph.
void check_cuda_graph(const std::vector<LogicalDevice>& devices);

}  // namespace lockstep::apps
