#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/strategies/sharding/internal/sharded_unit.h"

namespace lockstep {

class SumsBackward;

/// One call of a unit's forward, from the gather of its parameters to the sums of their gradients.
///
/// In the graph, the parameters are the results of a node whose inputs are the shards, so that LibTorch adds
/// up all gradients of a parameter. That node then begins to sum them over the ranks, and another one, which
/// the engine runs while the backward of other units goes on, waits for the sums. The unit's results pass
/// through a node that gathers the parameters again before their operations' backward.
///
/// The results own the call, through their node. Parameters lead to their node only as long as the call
/// lives.
class UnitCall : public std::enable_shared_from_this<UnitCall> {
 public:
  /// Gathers the parameters. A collective.
  static std::shared_ptr<UnitCall> begin(std::shared_ptr<ShardedUnit> unit);
  ~UnitCall();
  UnitCall(const UnitCall&) = delete;
  UnitCall& operator=(const UnitCall&) = delete;

  /// Has `inputs` say when backward is over, if no parameter has a gradient and would say so. Returns what
  /// forward takes instead.
  std::vector<at::Tensor> watch(std::vector<at::Tensor> inputs);
  /// Ends forward. Returns what the unit returns instead of `results`.
  std::vector<at::Tensor> end(std::vector<at::Tensor> results);

  /// Gathers the parameters unless this call holds them, and leads them to this call's node.
  void hold();
  /// Lets go of the parameters. Does nothing the second time.
  void drop() noexcept;

  // Its nodes call these.
  void begin_backward();
  torch::autograd::variable_list reduce(torch::autograd::variable_list&& gradients);

 private:
  explicit UnitCall(std::shared_ptr<ShardedUnit> unit);
  ReplicaUnits* units() const;
  std::shared_ptr<torch::autograd::Node> record_gradients();
  void begin_use(UnitUse::Kind kind);
  void begin_computing();
  void end_computing();
  void lead_parameters();
  void lead_nowhere();
  void drop_kept() const;
  bool is_kept();

  std::shared_ptr<ShardedUnit> unit_;
  bool is_holding_ = false;
  std::shared_ptr<const void> computing_;  // while it computes; see ReplicaUnits
  uint64_t recorded_from_ = 0;             // sequence number of the first node of forward
  std::vector<int64_t> versions_;
  /// Places in the unit of the parameters with a gradient, in the order of the node's results.
  std::vector<size_t> places_;
  std::weak_ptr<torch::autograd::Node> node_;
  std::weak_ptr<SumsBackward> sums_node_;  // null: sums are waited for at once
};

}  // namespace lockstep
