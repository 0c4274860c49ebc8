#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/replicas/replica_collectives.h"
#include "lockstep/strategies/sharding/gathered_units.h"
#include "lockstep/strategies/sharding/internal/unit_parameters.h"
#include "lockstep/strategies/sharding/unit_options.h"

namespace lockstep {

class UnitCall;

/// State that the units of a replica share.
struct ReplicaUnits {
  GatheredUnits counter;
  /// The last call whose backward is expected next, so that it still holds its parameters.
  std::weak_ptr<UnitCall> kept;
};

/// The parameters of one unit on one rank: cut, gathered for as long as someone holds them, and their
/// gradients summed. Only the replica's thread may use it.
class ShardedUnit {
 public:
  /// Cuts `parameters`, each of which appears once. Throws InvalidArgument for options out of range, and
  /// naming the parameter that cannot be cut.
  ShardedUnit(const std::vector<UnitParameter>& parameters, UnitOptions options);
  ShardedUnit(const ShardedUnit&) = delete;
  ShardedUnit& operator=(const ShardedUnit&) = delete;

  const UnitOptions& options() const { return options_; }
  void rename(const std::string& name);
  /// Throws InvalidArgument if `replica` has another number of ranks, or another place among them.
  void bind(std::shared_ptr<const ReplicaCollectives> replica);
  /// Returns what it shares with the replica's other units, null before bind().
  const std::shared_ptr<ReplicaUnits>& replica_units() const { return replica_units_; }

  /// Returns the shard of a parameter.
  at::Tensor shard_of(const at::Tensor& parameter) const;
  /// All parameters, and their shards in the same order.
  std::vector<at::Tensor> parameters() const;
  std::vector<at::Tensor> shards() const;
  std::vector<UnitParameter> named_parameters() const;
  /// Returns how often the shards were changed in place.
  std::vector<int64_t> versions() const;

  /// Follows shards that were moved to another device or dtype, unless the parameters are gathered.
  void follow_shards();

  /// Gathers the parameters unless they are. Blocks. A collective. Each call needs one release().
  void acquire();
  /// Frees them after the last.
  void release();
  int num_holders() const { return num_holders_; }

  /// Sums the gradients of parameters() over the ranks, and returns those of the shards. A collective.
  /// Undefined gradients are zeros. `is_last` says that the values of the parameters are not needed any more.
  /// Groups of parameters without gradient are left out.
  std::vector<at::Tensor> reduce_scatter(std::vector<at::Tensor> gradients, bool is_last);

  /// Throws InvalidArgument if forward changed a parameter, whose new value would be lost.
  void check_unchanged() const;

 private:
  using Group = std::unique_ptr<UnitParameters>;
  c10::intrusive_ptr<c10d::Backend> backend() const;
  void gather();
  template <typename Call>
  auto collective(const char* operation, const Call& call);

  UnitOptions options_;
  std::vector<Group> groups_;
  int64_t num_bytes_ = 0;
  int num_holders_ = 0;
  std::vector<int64_t> parameter_versions_;
  std::shared_ptr<const ReplicaCollectives> replica_;
  std::shared_ptr<ReplicaUnits> replica_units_;
};

}  // namespace lockstep
