#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

enum class ServerPlacementPolicy {
  kRoundRobin,  ///< one server after another, in turn
  /// The server with the fewest bytes so far; the first one if several have as few.
  kLeastLoaded
};

/// Decides which parameter server holds which shard. Shards placed in the same order get the same servers in
/// every process. Not thread-safe.
///
/// Example:
///
///     ServerPlacement placement(2, ServerPlacementPolicy::kLeastLoaded);
///     placement.place(1000);  // 0
///     placement.place(10);    // 1
///     placement.place(10);    // 1
class ServerPlacement {
 public:
  /// Throws InvalidArgument if `num_servers` is below 1.
  ServerPlacement(int num_servers, ServerPlacementPolicy policy);

  /// Returns the server of the next shard.
  int place(int64_t shard_bytes);

  /// Returns the bytes of all shards placed on a server.
  int64_t bytes_on(int server) const { return bytes_.at(static_cast<size_t>(server)); }

 private:
  const ServerPlacementPolicy policy_;
  std::vector<int64_t> bytes_;
  size_t next_ = 0;
};

}  // namespace lockstep
