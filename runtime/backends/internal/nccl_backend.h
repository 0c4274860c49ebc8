#pragma once

#include <string>

#include "lockstep/runtime/backends/backend_factory.h"
#include "lockstep/runtime/devices/device.h"

namespace lockstep {

/// Sets the options of NCCL's process groups that can only be set through environment variables. Variables
/// the user has set are kept. Call it before connecting. Throws InvalidArgument, at every call, if Lockstep
/// was compiled with an nccl.h that is older than the loaded NCCL.
void prepare_nccl();

/// Returns one rank's ProcessGroupNCCL. With the settings of prepare_nccl(), wait() of its works does not
/// block the host, and it never ends the process; the user's own TORCH_NCCL_BLOCKING_WAIT or
/// TORCH_NCCL_ASYNC_ERROR_HANDLING may change that. Throws c10::Error if there is no GPU, and InvalidArgument
/// in a build without CUDA.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request);

/// Returns an ID that is unique among the GPUs of all machines, in the sense of NCCL: parts of one GPU share
/// an ID. Returns an empty string in a build without CUDA.
std::string unique_id_of_gpu(const LogicalDevice& gpu);

}  // namespace lockstep
