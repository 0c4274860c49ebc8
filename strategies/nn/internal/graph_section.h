#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace lockstep {

/// Base of nodes that the engine runs later than their place in the order of recording: among the nodes that
/// are ready, it takes the one with the largest sequence number.
class LateNode : public torch::autograd::Node {
 public:
  /// Runs like a node of the number `as`, which is below that of nodes recorded now.
  explicit LateNode(uint64_t as);
  /// Returns the sequence number at which it was recorded.
  uint64_t recorded_at() const { return recorded_at_; }

 private:
  const uint64_t recorded_at_;
};

/// The part of the autograd graph that the calling thread records from the construction on.
///
/// Example:
///
///     const GraphSection section;
///     const auto y = layer(x);
///     section.visit_exits(roots_of({y}), [](torch::autograd::Edge& exit) { ... });  // to weights, and to x
class GraphSection {
 public:
  GraphSection();

  /// Calls `visit` with each edge that leads out of the section, of those that gradients cross on their way
  /// from `roots`: into leaves such as parameters, and into operations recorded before. An edge of `roots`
  /// itself can be one. `visit` may replace the edge. The order depends only on the graph.
  void visit_exits(torch::autograd::edge_list& roots,
                   const std::function<void(torch::autograd::Edge&)>& visit) const;

 private:
  bool contains(const torch::autograd::Node& node) const;

  uint64_t thread_;
  uint64_t begin_;
};

/// Returns the edges along which gradients enter the graph of the tensors that require one.
torch::autograd::edge_list roots_of(const torch::autograd::variable_list& tensors);

/// The end of a graph section: adds up the gradients that arrive along each of its edges, and keeps the sums.
class GradientCollector final : public torch::autograd::Node {
 public:
  /// `exits` are the edges whose gradients it takes instead.
  static std::shared_ptr<GradientCollector> make(const torch::autograd::edge_list& exits);

  std::string name() const override { return "GradientCollector"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

  /// Returns the sum for each edge, undefined if no gradient has arrived.
  torch::autograd::variable_list take() { return std::move(gradients_); }

 private:
  explicit GradientCollector(const torch::autograd::edge_list& exits);

  torch::autograd::variable_list gradients_;
};

}  // namespace lockstep
