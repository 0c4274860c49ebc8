#include "lockstep/parameter_server/shards/huge_pages.h"

#include <ATen/ops/empty_like.h>
#include <sys/mman.h>

#include <cstdint>

namespace lockstep {

at::Tensor empty_for_random_access(const at::Tensor& like) {
  auto tensor = at::empty_like(like, like.options(), at::MemoryFormat::Contiguous);
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<uintptr_t>(tensor.mutable_data_ptr());
  const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = (begin + tensor.nbytes()) / kHugePage * kHugePage;
  // This must precede the first write. If the system has no huge pages, small ones do no harm.
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#endif
  return tensor;
}

}  // namespace lockstep
