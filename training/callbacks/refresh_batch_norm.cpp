#include "lockstep/training/callbacks/refresh_batch_norm.h"

#include <c10/util/StringUtil.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep::detail {

void check_refresh_options(const RefreshBatchNormOptions& options) {
  if (options.max_batches < 1) {
    throw InvalidArgument(
        c10::str("[refresh_batch_norm] expected max_batches of 1 or more, but got ", options.max_batches));
  }
}

}  // namespace lockstep::detail
