#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

enum class ServerPlacementPolicy {
  kRoundRobin,  ///< one server after another
  kLeastLoaded  ///< the server with the fewest bytes so far, the first of several
};

/// Says which parameter server holds which shard. Shards that are placed in the same order come to the same
/// servers in every process. For one thread.
class ServerPlacement {
 public:
  /// Throws InvalidArgument for less than one server.
  ServerPlacement(int num_servers, ServerPlacementPolicy policy);

  /// The server of the next shard.
  int place(int64_t shard_bytes);

  /// Of all shards that a server was given.
  int64_t bytes_on(int server) const { return bytes_.at(static_cast<size_t>(server)); }

 private:
  const ServerPlacementPolicy policy_;
  std::vector<int64_t> bytes_;
  size_t next_ = 0;
};

}  // namespace lockstep
