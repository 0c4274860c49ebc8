#include "lockstep/strategies/parallel/internal/split_backward.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace lockstep {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::Node;

/// Returns the nodes of the graph, each after those that its gradients go to.
std::vector<Node*> nodes_from(Node* root) {
  std::vector<Node*> ordered;
  std::unordered_set<Node*> seen{root};
  std::vector<std::pair<Node*, size_t>> path{{root, 0}};
  while (!path.empty()) {
    auto& [node, next] = path.back();
    if (next == node->num_outputs()) {
      ordered.push_back(node);
      path.pop_back();
      continue;
    }
    Node* const child = node->next_edge(next++).function.get();
    if (child != nullptr && seen.insert(child).second) path.emplace_back(child, 0);
  }
  return ordered;
}

/// Returns whether the node belongs to a function that computes, or frees what it needs, only once.
bool runs_once(const Node& node) {
  const std::string name = node.name();
  return name == "RecomputeBackward" || name.find("Sharded") != std::string::npos;
}

void append_missing(std::vector<size_t>& to, const std::vector<size_t>& from) {
  for (const size_t i : from) {
    if (std::find(to.begin(), to.end(), i) == to.end()) to.push_back(i);
  }
}

std::vector<torch::Tensor> run_graph(const edge_list& roots, const std::vector<torch::Tensor>& gradients,
                                     bool keep_graph, const edge_list& outputs) {
  return Engine::get_default_engine().execute(roots, gradients, keep_graph, /*create_graph=*/false,
                                              /*accumulate_grad=*/false, outputs);
}

}  // namespace

FunctionGradients run_backward(const torch::Tensor& result, const torch::Tensor& input,
                               const std::vector<torch::Tensor>& parameters, const torch::Tensor& gradient) {
  edge_list outputs;
  std::vector<size_t> places;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].requires_grad()) continue;
    outputs.push_back(torch::autograd::impl::gradient_edge(parameters[i]));
    places.push_back(i);
  }
  if (input.defined()) outputs.push_back(torch::autograd::impl::gradient_edge(input));
  FunctionGradients all{.input = {}, .parameters = std::vector<torch::Tensor>(parameters.size())};
  if (outputs.empty()) return all;
  auto found =
      run_graph({torch::autograd::impl::gradient_edge(result)}, {gradient}, /*keep_graph=*/false, outputs);
  for (size_t i = 0; i < places.size(); ++i) all.parameters[places[i]] = std::move(found[i]);
  if (input.defined()) all.input = std::move(found.back());
  return all;
}

SplitBackward::SplitBackward(const torch::Tensor& result, const torch::Tensor& input,
                             const std::vector<torch::Tensor>& parameters)
    : result_(result), input_(input), parameters_(parameters) {
  if (input_.defined()) find_branches();
}

void SplitBackward::find_branches() {
  std::unordered_map<const Node*, size_t> leaves;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].requires_grad()) continue;
    leaves.emplace(torch::autograd::impl::gradient_edge(parameters_[i]).function.get(), i);
  }
  const auto of_input = torch::autograd::impl::gradient_edge(input_).function;
  const Edge root = torch::autograd::impl::gradient_edge(result_);
  std::unordered_set<const Node*> leads_to_input;
  std::unordered_map<const Node*, std::vector<size_t>> used;  // parameters, by nodes that do not lead there
  std::vector<char> is_used(parameters_.size(), 0);
  for (Node* const node : nodes_from(root.function.get())) {
    if (runs_once(*node)) is_split_ = false;
    bool leads = node == of_input.get();
    std::vector<size_t> own;
    if (const auto leaf = leaves.find(node); leaf != leaves.end()) own.push_back(leaf->second);
    for (const auto& edge : node->next_edges()) {
      if (edge.function == nullptr) continue;
      leads = leads || leads_to_input.contains(edge.function.get());
      if (const auto known = used.find(edge.function.get()); known != used.end())
        append_missing(own, known->second);
    }
    if (!leads) {
      if (!own.empty()) used.emplace(node, std::move(own));
      continue;
    }
    leads_to_input.insert(node);
    if (own.empty()) {
      if (node != of_input.get()) passed_.push_back(node);
      continue;
    }
    for (const size_t parameter : own) {
      // The gradient that one use passes on would reach the other use again.
      if (std::exchange(is_used[parameter], 1) != 0) is_split_ = false;
    }
    branches_.push_back({.node = node->getptr(), .parameters = std::move(own), .gradients = {}});
  }
  if (!leads_to_input.contains(root.function.get())) is_split_ = false;
  if (is_split_) return;
  branches_.clear();
  passed_.clear();
}

torch::Tensor SplitBackward::inputs(const torch::Tensor& gradient) {
  if (!input_.defined()) {
    gradient_of_result_ = gradient;
    return {};
  }
  if (!is_split_) {
    auto all = run_backward(result_, input_, parameters_, gradient);
    gradients_ = std::move(all.parameters);
    result_.reset();
    input_.reset();  // which would be kept until the second half, although that computes nothing
    return all.input;
  }
  const Edge root = torch::autograd::impl::gradient_edge(result_);
  edge_list outputs{torch::autograd::impl::gradient_edge(input_)};
  for (const auto& branch : branches_) {
    for (uint32_t i = 0; i < branch.node->num_inputs(); ++i) outputs.emplace_back(branch.node, i);
  }
  auto found = run_graph({root}, {gradient}, /*keep_graph=*/true, outputs);
  size_t next = 1;
  for (auto& branch : branches_) {
    for (uint32_t i = 0; i < branch.node->num_inputs(); ++i)
      branch.gradients.push_back(std::move(found[next++]));
  }
  // Only branches are run again.
  for (auto* const node : passed_) node->release_variables();
  passed_.clear();
  result_.reset();
  return std::move(found.front());
}

std::vector<torch::Tensor> SplitBackward::weights() {
  if (gradient_of_result_.defined()) {  // there is no input
    gradients_ =
        run_backward(result_, input_, parameters_, std::exchange(gradient_of_result_, {})).parameters;
    result_.reset();
  }
  if (branches_.empty()) {
    gradients_.resize(parameters_.size());
    return std::move(gradients_);
  }
  std::vector<torch::Tensor> all(parameters_.size());
  for (auto& branch : branches_) {
    edge_list roots;
    std::vector<torch::Tensor> gradients;
    for (uint32_t i = 0; i < branch.gradients.size(); ++i) {
      if (!branch.gradients[i].defined()) continue;
      roots.emplace_back(branch.node, i);
      gradients.push_back(std::move(branch.gradients[i]));
    }
    edge_list outputs;
    for (const size_t parameter : branch.parameters)
      outputs.push_back(torch::autograd::impl::gradient_edge(parameters_[parameter]));
    if (!roots.empty()) {
      auto found = run_graph(roots, gradients, /*keep_graph=*/false, outputs);
      for (size_t i = 0; i < found.size(); ++i) all[branch.parameters[i]] = std::move(found[i]);
    }
    branch.node.reset();
  }
  branches_.clear();
  return all;
}

}  // namespace lockstep
