#include "lockstep/runtime/base/net/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace lockstep {

void raise_descriptor_limit() noexcept {
  // Programs that this one starts inherit the limit, and some of them close every number below it.
  constexpr rlim_t kMost = 65'536;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kMost);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace lockstep
