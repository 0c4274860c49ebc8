#include "lockstep/strategies/nn/recompute.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "lockstep/strategies/nn/internal/graph_section.h"
#include "lockstep/strategies/nn/internal/recompute_backward.h"

namespace lockstep::detail {

using torch::autograd::Edge;
using torch::autograd::edge_list;

/// The first forward records a graph, too, which is dropped at once: it tells which results have a gradient
/// and which parameters the function uses. It also has operators choose the same kernels both times.
struct FirstForward::State {
  State(std::vector<torch::Tensor> given, const RecomputeOptions& options)
      : originals(std::move(given)),
        leaves(as_leaves(originals)),
        conditions(originals, options.restores_random_state) {
    for (const auto& leaf : leaves) {
      // Detached once more: the leaf itself holds its node.
      const bool requires_grad = leaf.defined() && leaf.requires_grad();
      kept.push_back({leaf.defined() ? leaf.detach() : leaf, requires_grad, version_of(leaf)});
    }
  }

  std::vector<torch::Tensor> originals;
  std::vector<torch::Tensor> leaves;
  std::vector<KeptInput> kept;
  ForwardConditions conditions;
  NoAutocastCacheGuard no_autocast_cache;
  GraphSection section;
};

FirstForward::FirstForward(std::vector<torch::Tensor> inputs, const RecomputeOptions& options)
    : state_(std::make_unique<State>(std::move(inputs), options)) {}

FirstForward::~FirstForward() = default;

const std::vector<torch::Tensor>& FirstForward::inputs() const {
  return state_->leaves;
}

std::vector<torch::Tensor> FirstForward::record(
    const std::vector<torch::Tensor>& results,
    std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)> again) {
  edge_list roots = roots_of(results);
  const edge_list own = roots_of(state_->leaves);
  edge_list exits;
  std::vector<int64_t> versions;
  state_->section.visit_exits(roots, [&](const Edge& exit) {
    const auto is_exit = [&](const Edge& other) { return other == exit; };
    if (std::any_of(own.begin(), own.end(), is_exit)) return;
    if (std::any_of(exits.begin(), exits.end(), is_exit)) return;
    exits.push_back(exit);
    versions.push_back(version_of_leaf(exit));
  });
  state_->conditions.forget_unused_generators();

  std::vector<torch::Tensor> recorded;
  recorded.reserve(results.size());
  std::vector<ResultShape> shapes;
  shapes.reserve(results.size());
  for (const auto& result : results) {
    shapes.emplace_back(result);
    recorded.push_back(result.defined() ? result.detach() : result);
  }
  if (roots.empty()) return recorded;

  edge_list edges = roots_of(state_->originals);
  edges.insert(edges.end(), exits.begin(), exits.end());
  const std::shared_ptr<torch::autograd::Node> node(
      new RecomputeBackward({.function = std::move(again),
                             .inputs = std::move(state_->kept),
                             .conditions = std::move(state_->conditions),
                             .exits = std::move(exits),
                             .exit_versions = std::move(versions),
                             .results = shapes}),
      torch::autograd::deleteNode);
  node->set_next_edges(std::move(edges));
  for (size_t i = 0; i < recorded.size(); ++i) {
    if (shapes[i].requires_grad) torch::autograd::create_gradient_edge(recorded[i], node);
  }
  return recorded;
}

}  // namespace lockstep::detail
