#pragma once

#include <memory>
#include <vector>

#include "lockstep/runtime/cluster/cluster_resolver.h"

namespace lockstep {

/// Merges several resolvers: the cluster has the tasks of all of them. If any of these tasks train, rank and
/// world size count the merged cluster. All other answers come from the first resolver.
///
/// Example:
///
///     UnionClusterResolver resolver({std::make_shared<TFConfigClusterResolver>(process_environment()),
///                                    std::make_shared<SimpleClusterResolver>(evaluators, "evaluator", 0)});
class UnionClusterResolver : public FixedClusterResolver {
 public:
  /// Throws InvalidArgument for an empty list, a null resolver, and a task to which two resolvers give
  /// different addresses, naming both.
  explicit UnionClusterResolver(const std::vector<std::shared_ptr<const ClusterResolver>>& resolvers);
};

}  // namespace lockstep
