#pragma once

#include <string>

#include "lockstep/runtime/replicas/replica_axis.h"

namespace lockstep {

/// Options of a unit: the ranks that its parameters are cut over, and when they are gathered.
struct UnitOptions {
  int index = 0;              ///< place of this rank among those that share the unit's parameters
  int size = 1;               ///< number of these ranks
  std::string axis = "data";  ///< axis of the mesh along which they are
  /// Keeps the whole parameters from forward until backward has used them, instead of gathering them again:
  /// for more memory, a gather less.
  bool keep_until_backward = false;
  /// The unit's name in errors. Empty: its block's type.
  std::string name{};
  /// Gathers the unit while the one before it computes, once the order of units is known, and sums its
  /// gradients while backward goes on, for the memory of one unit more in forward and two more in backward.
  /// The same on all ranks.
  bool overlap = true;
};

/// Returns options that cut a unit's parameters over the replicas along an axis.
///
/// Example:
///
///     auto layer = strategy.scope([](ReplicaContext& replica) {
///       return Sharded<torch::nn::Linear>(along(replica.axis("shard")), 1024, 1024);
///     });
inline UnitOptions along(const ReplicaAxis& axis) {
  return {.index = axis.index(), .size = axis.size(), .axis = axis.name()};
}

}  // namespace lockstep
