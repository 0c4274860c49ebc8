#include "lockstep/runtime/backends/internal/nccl_settings.h"

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// Formats an NCCL_VERSION_CODE, which has two digits for the minor and two for the patch version.
std::string version_text(int code) {
  return std::to_string(code / 10000) + '.' + std::to_string(code / 100 % 100) + '.' +
         std::to_string(code % 100);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> nccl_settings(bool has_expandable_segments) {
  std::vector<std::pair<std::string, std::string>> settings{
      // A failed or late collective aborts its communicator and is otherwise only an error (CleanUpOnly).
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "2"},
      // Nothing ends the process because a watchdog has no heartbeat.
      {"TORCH_NCCL_ENABLE_MONITORING", "0"},
      // A CUDA error in the watchdog's thread ends only that thread, not the process: replicas get it too.
      {"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"},
      // LibTorch's flight recorder writes no dump. The watchdog, and the destructor with it, would wait a
      // minute for the dump before aborting a failed collective.
      {"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"},
      {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "0"},
      // Gradients, SyncBatchNorm and the user's collectives have communicators of their own. NCCL then runs
      // their kernels on a GPU in the order in which the host has launched them. Without it, two GPUs could
      // start two of them in different orders, which is a deadlock if a GPU cannot hold both.
      {"NCCL_LAUNCH_ORDER_IMPLICIT", "1"},
  };
  // Ranks of one process read each other's memory by its address. That fails for memory which cudaMalloc()
  // did not make.
  if (has_expandable_segments) settings.emplace_back("NCCL_P2P_DIRECT_DISABLE", "1");
  return settings;
}

void check_nccl_version(int header, int library) {
  if (header / 100 >= library / 100) return;
  throw InvalidArgument("this build of Lockstep was compiled with the nccl.h of NCCL " +
                        version_text(header) + ", but NCCL " + version_text(library) +
                        " is loaded: build it again with the nccl.h that belongs to LibTorch's NCCL "
                        "(LOCKSTEP_NCCL_INCLUDE)");
}

}  // namespace lockstep
