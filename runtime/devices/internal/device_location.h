#pragma once

#include <c10/core/Device.h>

namespace lockstep {

/// Keeps the calling thread, and the threads that it starts from now on, on the CPUs nearest to the GPU:
/// those of its NUMA node, so that what the thread launches and allocates need not cross between sockets.
/// Does nothing if these CPUs are not known, if the thread may use none of them, or in a build without CUDA.
/// The first call looks at the machine, which takes tens of milliseconds.
void keep_this_thread_near(c10::Device gpu);

}  // namespace lockstep
