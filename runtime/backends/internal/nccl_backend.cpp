// NCCL's backends in builds with CUDA; other builds use nccl_backend_absent.cpp.
#include "lockstep/runtime/backends/internal/nccl_backend.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/util/StringUtil.h>
#include <c10/util/env.h>
#include <nccl.h>
#include <torch/csrc/distributed/c10d/NCCLUtils.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <fstream>
#include <utility>

#include "lockstep/runtime/backends/internal/nccl_settings.h"

namespace lockstep {
namespace {

/// A process group whose failures remain errors of its works.
class MildProcessGroup : public c10d::ProcessGroupNCCL {
 public:
  using c10d::ProcessGroupNCCL::ProcessGroupNCCL;

 protected:
  // The heartbeat monitor, if a user has enabled it, calls this for a stuck watchdog.
  void terminateProcess(const std::string& message) override {
    TORCH_WARN("NcclAllReduce: NCCL asked to end the process, which continues: ", message);
  }
};

}  // namespace

void prepare_nccl() {
  // LibTorch 2.11 reads these settings only here, in its constructors. Its defaults suit processes that a
  // launcher restarts: errors and timeouts end them.
  static const bool is_prepared = [] {
    const bool has_expandable_segments =
        c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments();
    for (const auto& [name, value] : nccl_settings(has_expandable_segments))
      c10::utils::set_env(name.c_str(), value.c_str(), /*overwrite=*/false);
    // NCCL copies its configuration file into the environment on first use, which must not happen while other
    // threads read the environment.
    check_nccl_version(NCCL_VERSION_CODE, static_cast<int>(c10d::getNcclVersionNumber()));
    return true;
  }();
  static_cast<void>(is_prepared);
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = request.timeout;
  // High-priority streams have a separate pool. From the other pool NCCL could get a replica's stream.
  options->is_high_priority_stream = true;
  auto group = c10::make_intrusive<MildProcessGroup>(request.store, request.rank, request.size, options);
  group->setBoundDeviceId(request.device.torch_device());
  return group;
}

std::string unique_id_of_gpu(const LogicalDevice& gpu) {
  // The boot ID is the same in all containers of a machine.
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string machine;
  file >> machine;
  const auto* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(gpu.index));
  return c10::str(machine, '/', properties->pciDomainID, ':', properties->pciBusID, ':',
                  properties->pciDeviceID);
}

}  // namespace lockstep
