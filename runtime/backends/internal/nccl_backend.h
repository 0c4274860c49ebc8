#pragma once

#include <string>

#include "lockstep/runtime/backends/backend_channel.h"
#include "lockstep/runtime/devices/device.h"

namespace lockstep {

/// Settings of NCCL's process groups that only the environment can make. Call it before connecting; what the
/// user has set stays.
void prepare_nccl();

/// One rank's ProcessGroupNCCL; throws c10::Error where there is no GPU. With the settings of prepare_nccl()
/// its works do not block the host in wait(), and it never ends the process by itself; a user's own may say
/// otherwise (TORCH_NCCL_BLOCKING_WAIT, TORCH_NCCL_ASYNC_ERROR_HANDLING). In a build without CUDA it throws
/// InvalidArgument.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request);

/// What tells a GPU from those of all machines, as far as NCCL does: parts of one GPU have the same. Empty in
/// a build without CUDA.
std::string unique_id_of_gpu(const LogicalDevice& gpu);

}  // namespace lockstep
