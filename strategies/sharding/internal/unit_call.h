#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/strategies/sharding/internal/sharded_unit.h"

namespace lockstep {

/// One call of a unit's forward, from the gather of its parameters to the sums of their gradients.
///
/// In the graph, the parameters are the results of a node whose inputs are the shards, so that LibTorch adds
/// up all gradients of a parameter. That node then sums them over the ranks. The unit's results pass through
/// another node, which gathers the parameters again before their operations' backward.
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
  void lead_parameters();
  void lead_nowhere();
  void drop_kept() const;
  bool is_kept();

  std::shared_ptr<ShardedUnit> unit_;
  bool is_holding_ = false;
  std::vector<int64_t> versions_;
  /// Places in the unit of the parameters with a gradient, in the order of the node's results.
  std::vector<size_t> places_;
  std::weak_ptr<torch::autograd::Node> node_;
};

}  // namespace lockstep
