#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

/// Names of a channel's ranks in errors. By default, rank r is replica r.
struct RankNames {
  std::vector<int> replicas;  ///< The id of each rank's replica. Empty: the same as the rank.
  std::string where;          ///< Follows the names of collectives, such as " over axis shard".

  int replica_of(int rank) const { return replicas.empty() ? rank : replicas[static_cast<size_t>(rank)]; }
};

}  // namespace lockstep
