#pragma once

#include <string>

namespace lockstep {

/// Divides the memory of training among the replicas along one axis of the mesh, instead of each holding all
/// of it (ZeRO; Rajbhandari et al., 2020).
///
/// Example:
///
///     MirroredStrategy strategy(cpu_devices(4), {.sharding = {.stage = 2}});
struct ShardingOptions {
  /// 0: each replica holds everything. 1: each keeps the optimizers' state of its part of the parameters, and
  /// steps that part. 2: each keeps the gradients of its part only, too. 3: the model is built of units along
  /// the axis, whose parameters are divided as well (see ShardedModule); what is outside of units stays
  /// whole.
  int stage = 0;
  /// The axis, over which gradients are summed: one that cuts the batch, or sequences. The others of these
  /// have copies of what its ranks hold together. Parameters that are cut along a model axis are divided
  /// among the ranks that have the same rows. Empty: "shard" if the mesh has it, otherwise the last axis that
  /// cuts the batch, and without one the last that cuts sequences.
  std::string axis;
  /// Keeps the optimizers' state of parameters on GPUs in the host's memory, and steps on the CPU, whatever
  /// the stage. GPUs then hold no state. Each step copies its parameters and gradients to the host, waits for
  /// them, and copies the stepped values back. Such steps cannot be captured by a CudaGraph. Nothing changes
  /// for parameters on CPUs.
  bool host_optimizer_state = false;
};

}  // namespace lockstep
