#include "lockstep/runtime/devices/internal/gpu_name.h"

#ifdef LOCKSTEP_WITH_CUDA
#include <ATen/cuda/CUDAContext.h>
#endif

namespace lockstep {

std::string gpu_name([[maybe_unused]] int index) {
#ifdef LOCKSTEP_WITH_CUDA
  return at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index))->name;
#else
  return "";
#endif
}

}  // namespace lockstep
