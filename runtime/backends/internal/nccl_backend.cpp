// NCCL's backends in builds with CUDA; nccl_backend_absent.cpp stands in elsewhere.
#include "lockstep/runtime/backends/internal/nccl_backend.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/util/StringUtil.h>
#include <c10/util/env.h>
#include <torch/csrc/distributed/c10d/NCCLUtils.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <fstream>
#include <utility>

namespace lockstep {
namespace {

/// A process group whose failures stay errors of its works.
class MildProcessGroup : public c10d::ProcessGroupNCCL {
 public:
  using c10d::ProcessGroupNCCL::ProcessGroupNCCL;

 protected:
  // Asked for by the heartbeat monitor, where a user has switched it on, for a watchdog that is stuck.
  void terminateProcess(const std::string& message) override {
    TORCH_WARN("NcclAllReduce: NCCL asked to end the process, which goes on: ", message);
  }
};

}  // namespace

void prepare_nccl() {
  // What LibTorch 2.11 reads nowhere else, in its constructors. Its defaults are made for processes that a
  // launcher starts again: errors and timeouts end them.
  static const bool is_prepared = [] {
    const std::pair<const char*, const char*> settings[] = {
        // A failed or late collective aborts its communicator and is no more than an error (CleanUpOnly).
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "2"},
        // Nobody ends the process for a watchdog without a heartbeat.
        {"TORCH_NCCL_ENABLE_MONITORING", "0"},
        // A CUDA error in the watchdog's thread ends that thread and not the process: replicas get it, too.
        {"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"},
        // No dump of LibTorch's flight recorder, for which the watchdog would sleep a minute before it aborts
        // what has failed, and the destructor with it.
        {"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"},
        {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "0"},
    };
    for (const auto& [name, value] : settings) c10::utils::set_env(name, value, /*overwrite=*/false);
    // NCCL copies its configuration file into the environment when it is first asked for anything, which
    // must not happen beside threads that read there.
    c10d::getNcclVersion();
    return true;
  }();
  static_cast<void>(is_prepared);
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = request.timeout;
  // Those come out of a pool of their own: in the other one NCCL could get a replica's stream.
  options->is_high_priority_stream = true;
  auto group = c10::make_intrusive<MildProcessGroup>(request.store, request.rank, request.size, options);
  group->setBoundDeviceId(request.device.torch_device());
  return group;
}

std::string unique_id_of_gpu(const LogicalDevice& gpu) {
  // The same in all containers of a machine.
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string machine;
  file >> machine;
  const auto* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(gpu.index));
  return c10::str(machine, '/', properties->pciDomainID, ':', properties->pciBusID, ':',
                  properties->pciDeviceID);
}

}  // namespace lockstep
