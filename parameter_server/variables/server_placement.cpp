#include "lockstep/parameter_server/variables/server_placement.h"

#include <algorithm>
#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

ServerPlacement::ServerPlacement(int num_servers, ServerPlacementPolicy policy) : policy_(policy) {
  if (num_servers < 1)
    throw InvalidArgument("[ServerPlacement] expected at least one server, but got " +
                          std::to_string(num_servers));
  bytes_.resize(static_cast<size_t>(num_servers));
}

int ServerPlacement::place(int64_t shard_bytes) {
  const size_t server =
      policy_ == ServerPlacementPolicy::kRoundRobin
          ? next_
          : static_cast<size_t>(std::min_element(bytes_.begin(), bytes_.end()) - bytes_.begin());
  next_ = (next_ + 1) % bytes_.size();
  bytes_[server] += shard_bytes;
  return static_cast<int>(server);
}

}  // namespace lockstep
