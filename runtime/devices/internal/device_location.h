#pragma once

#include <c10/core/Device.h>

#include "lockstep/runtime/devices/internal/cpu_affinity.h"

namespace lockstep {

/// Returns the CPUs nearest to the GPU, such as those of its NUMA node: what threads on them launch and
/// allocate need not cross between nodes. Empty if they are not known, or in a build without CUDA. The first
/// call looks at the machine, which takes tens of milliseconds.
Cpus cpus_near(c10::Device gpu);

}  // namespace lockstep
