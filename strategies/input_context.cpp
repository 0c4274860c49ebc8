#include "lockstep/strategies/input_context.h"

#include "lockstep/runtime/errors.h"

namespace lockstep {

int64_t InputContext::get_per_replica_batch_size(int64_t global_batch_size) const {
  if (global_batch_size < 1 || global_batch_size % num_replicas_in_sync != 0) {
    throw InvalidArgument("[InputContext] expected a global batch size that " +
                          std::to_string(num_replicas_in_sync) + " replicas divide, but got " +
                          std::to_string(global_batch_size));
  }
  return global_batch_size / num_replicas_in_sync;
}

}  // namespace lockstep
