#include "lockstep/runtime/backends/internal/nccl_backend.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep {

void prepare_nccl() {}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest&) {
  throw InvalidArgument("this build of Lockstep has no NCCL (LOCKSTEP_CUDA=OFF)");
}

std::string unique_id_of_gpu(const LogicalDevice&) {
  return "";
}

}  // namespace lockstep
