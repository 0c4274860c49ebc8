#include "lockstep/strategies/nn/internal/graph_section.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <unordered_set>
#include <utility>
#include <vector>

namespace lockstep {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;

LateNode::LateNode(uint64_t as) : Node(as), recorded_at_(at::sequence_number::peek()) {}

GraphSection::GraphSection()
    : thread_(at::RecordFunction::currentThreadId()), begin_(at::sequence_number::peek()) {}

/// The nodes of leaves have the largest number of all, so that the engine runs them first.
bool GraphSection::contains(const Node& node) const {
  if (node.thread_id() != thread_ || node.sequence_nr() == UINT64_MAX) return false;
  if (node.sequence_nr() >= begin_) return true;
  const auto* late = dynamic_cast<const LateNode*>(&node);
  return late != nullptr && late->recorded_at() >= begin_;
}

void GraphSection::visit_exits(edge_list& roots, const std::function<void(Edge&)>& visit) const {
  std::unordered_set<Node*> seen;
  std::vector<Node*> open;
  const auto look_at = [&](edge_list& edges) {
    for (auto& edge : edges) {
      if (!edge.is_valid()) continue;
      Node* node = edge.function.get();
      if (!contains(*node)) {
        visit(edge);
      } else if (seen.insert(node).second) {
        open.push_back(node);
      }
    }
  };
  look_at(roots);
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    look_at(node->next_edges());
  }
}

edge_list roots_of(const variable_list& tensors) {
  edge_list roots;
  for (const auto& tensor : tensors) {
    if (tensor.defined() && tensor.requires_grad())
      roots.push_back(torch::autograd::impl::gradient_edge(tensor));
  }
  return roots;
}

GradientCollector::GradientCollector(const edge_list& exits) : gradients_(exits.size()) {
  for (const auto& exit : exits) input_metadata_.push_back(exit.function->input_metadata(exit.input_nr));
}

std::shared_ptr<GradientCollector> GradientCollector::make(const edge_list& exits) {
  return {new GradientCollector(exits), torch::autograd::deleteNode};
}

variable_list GradientCollector::apply(variable_list&& gradients) {
  gradients_ = std::move(gradients);
  return {};
}

}  // namespace lockstep
