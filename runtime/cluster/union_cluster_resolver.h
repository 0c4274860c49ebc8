#pragma once

#include <memory>
#include <vector>

#include "lockstep/runtime/cluster/cluster_resolver.h"

namespace lockstep {

/// Several resolvers as one: the cluster has the tasks of all of them; everything else is the first one's,
/// except that rank and world size count the tasks of the merged cluster where any of these train.
class UnionClusterResolver : public FixedClusterResolver {
 public:
  /// Throws InvalidArgument for no resolver, a null one, and a task to which two of them give different
  /// addresses, naming both.
  explicit UnionClusterResolver(const std::vector<std::shared_ptr<const ClusterResolver>>& resolvers);
};

}  // namespace lockstep
