#include "lockstep/runtime/precision/autocast.h"

#include <ATen/autocast_mode.h>
#include <c10/util/StringUtil.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

AutocastGuard::AutocastGuard(c10::DeviceType device, c10::ScalarType dtype)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      was_cache_enabled_(at::autocast::is_autocast_cache_enabled()),
      previous_dtype_(at::autocast::get_autocast_dtype(device)) {
  const bool casts = dtype == at::kBFloat16 || dtype == at::kHalf;
  if (!casts && dtype != at::kFloat) {
    throw InvalidArgument(c10::str("[autocast] expected Float (casts nothing), BFloat16 or Half, but got ",
                                   c10::toString(dtype)));
  }
  at::autocast::set_autocast_enabled(device, casts);
  if (casts) at::autocast::set_autocast_dtype(device, dtype);
  // LibTorch can keep a copy of each weight in the shorter type for later uses. All threads share these
  // copies, and the first thread that clears them also clears the others'. A weight used twice would then
  // have one copy or two by chance, its gradient added up in the shorter type or in float32. Without copies,
  // runs are bit-equal, no replica waits for another's lock, and a captured CUDA graph holds no memory that
  // clearing frees. The cost is a cast for each further use of a weight in a forward.
  at::autocast::set_autocast_cache_enabled(false);
}

AutocastGuard::~AutocastGuard() {
  at::autocast::set_autocast_cache_enabled(was_cache_enabled_);
  at::autocast::set_autocast_dtype(device_, previous_dtype_);
  at::autocast::set_autocast_enabled(device_, was_enabled_);
}

}  // namespace lockstep
