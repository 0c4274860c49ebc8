#pragma once

#include "lockstep/runtime/cluster/environment.h"

namespace lockstep::apps {

/// Loads the library that LOCKSTEP_DEVICE_PLUGIN names, which adds a device to LibTorch, and leaves it
/// loaded. `torch_tpu` stands for Lockstep's own library of that name, if the build has it; such a build also
/// loads it if the variable is not set and the machine has a TPU. Does nothing if the variable is not set
/// otherwise, and if it is `none`. Call it before the first use of a device. Throws UsageError naming the
/// library if it cannot be loaded, and rethrows errors of torch_tpu::TorchTpu.
void load_device_plugin(const Environment& environment);

/// Returns `code`, for main() to return. With torch_tpu in the process, it does not return: it flushes the
/// standard streams and ends the process with `code` without destroying static objects, as torch_tpu's
/// threads, which outlive main(), would crash meanwhile.
int exit_code_with_device_plugin(int code);

}  // namespace lockstep::apps
