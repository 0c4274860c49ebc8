#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/replicas/replica_collectives.h"
#include "lockstep/strategies/sharding/internal/replica_units.h"
#include "lockstep/strategies/sharding/internal/unit_parameters.h"
#include "lockstep/strategies/sharding/unit_options.h"

namespace lockstep {

/// The parameters of one unit on one rank: cut, gathered for as long as someone holds them, and their
/// gradients summed. Only the replica's thread may use it.
class ShardedUnit : public std::enable_shared_from_this<ShardedUnit> {
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
  /// Returns its number among the replica's units.
  int64_t number() const { return number_; }

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
  /// Frees this rank's part of the parameters, and all memory of the unit. It cannot be called any more.
  void give_up();

  /// Gathers the parameters unless they are. Blocks. A collective unless gather_ahead() has begun it. Each
  /// call needs one release().
  void acquire();
  /// Frees them after the last.
  void release();
  int num_holders() const { return num_holders_; }
  /// Returns how many ranks share the memory of what was gathered last; 1 before the first gather.
  int num_sharing() const { return num_sharing_; }

  /// Begins to gather the parameters for the next acquire(), while nobody holds them. A collective, which
  /// does not block.
  void gather_ahead();
  /// Keeps the parameters for the next acquire() when the only holder releases them.
  void keep() { is_ahead_ = true; }
  /// Frees what was gathered ahead or kept, once its gather has ended. Blocks.
  void drop_ahead();
  /// Leaves the memory of a gather to a collective that has failed.
  void abandon() noexcept;

  /// Begins to sum the gradients of parameters() over the ranks. A collective, which does not block.
  /// Undefined gradients are zeros. `is_last` says that the values of the parameters are not needed any more.
  /// Groups of parameters without gradient are left out.
  std::shared_ptr<UnitSum> begin_sum(std::vector<at::Tensor> gradients, bool is_last);
  /// Blocks until the sums are there. Does nothing the second time.
  void finish(UnitSum& sum);

  /// Throws InvalidArgument if forward changed a parameter, whose new value would be lost.
  void check_unchanged() const;

 private:
  using Group = std::unique_ptr<UnitParameters>;
  c10::intrusive_ptr<c10d::Backend> backend() const;
  bool is_counted() const { return replica_units_ != nullptr && options_.size > 1; }
  bool is_fresh() const;
  void begin_gather();
  void end_gather();
  template <typename Call>
  auto collective(const char* operation, const Call& call);

  UnitOptions options_;
  std::vector<Group> groups_;
  int64_t num_bytes_ = 0;  // of the whole parameters
  int num_sharing_ = 1;
  int64_t counted_bytes_ = 0;  // of what is gathered, this rank's share
  int num_holders_ = 0;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;  // of a gather
  bool is_ahead_ = false;                              // gathered or kept for the next acquire()
  std::vector<int64_t> gathered_versions_;             // of the shards when the gather began
  std::vector<int64_t> parameter_versions_;
  int64_t number_ = 0;
  std::shared_ptr<const ReplicaCollectives> replica_;
  std::shared_ptr<ReplicaUnits> replica_units_;
};

}  // namespace lockstep
