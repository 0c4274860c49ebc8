#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Returns the environment variables, with their values, that NCCL and LibTorch's process groups need in a
/// process with several replicas. `has_expandable_segments` tells whether LibTorch's allocator maps its
/// memory piece by piece (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True).
std::vector<std::pair<std::string, std::string>> nccl_settings(bool has_expandable_segments);

/// Throws InvalidArgument if `header`, the version of the nccl.h that Lockstep was compiled with, is older
/// than `library`, the version of the NCCL that is loaded. Both are NCCL_VERSION_CODE's, of NCCL 2.9 or
/// later. Patch releases do not matter.
///
/// LibTorch's process groups contain NCCL's configuration as a struct, which grows from version to version.
/// Code compiled with an older header allocates too little memory for it.
void check_nccl_version(int header, int library);

}  // namespace lockstep
