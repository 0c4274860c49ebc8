#include "lockstep/strategies/nn/internal/recompute_backward.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/nn/internal/graph_section.h"

namespace lockstep {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;

void check_unchanged(const RecomputeBackward::Kept& kept) {
  for (size_t i = 0; i < kept.inputs.size(); ++i) {
    const auto& input = kept.inputs[i];
    if (version_of(input.value) == input.version) continue;
    throw InvalidArgument(c10::str("[recompute] expected tensor ", i,
                                   " of the arguments as the first forward got it, but it was changed in "
                                   "place, in the function or before backward"));
  }
  for (size_t i = 0; i < kept.exits.size(); ++i) {
    if (version_of_leaf(kept.exits[i]) == kept.exit_versions[i]) continue;
    throw InvalidArgument(
        "[recompute] expected parameters as the first forward used them, but one was changed in place before "
        "backward, as by an optimizer's step");
  }
}

void check_results(const std::vector<ResultShape>& expected, const variable_list& results) {
  if (results.size() != expected.size()) {
    throw InvalidArgument(c10::str("[recompute] expected ", expected.size(),
                                   " tensors, as from the first forward, but the second returned ",
                                   results.size(), ": the function must compute the same both times"));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const ResultShape shape(results[i]);
    if (shape == expected[i]) continue;
    throw InvalidArgument(c10::str("[recompute] expected ", expected[i].describe(), " as tensor ", i,
                                   " of the result, as from the first forward, but the second returned ",
                                   shape.describe(), ": the function must compute the same both times"));
  }
}

[[noreturn]] void refuse_other_tensors(const char* difference) {
  throw InvalidArgument(c10::str("[recompute] the second forward used ", difference,
                                 " than the first among parameters and other tensors with a gradient: the "
                                 "function must compute the same both times"));
}

/// Leads the gradients that leave the section along `exits` into a collector.
std::shared_ptr<GradientCollector> collect(const GraphSection& section, const edge_list& exits,
                                           size_t num_inputs, edge_list& roots) {
  std::map<std::pair<Node*, uint32_t>, uint32_t> places;
  for (uint32_t i = 0; i < exits.size(); ++i) places[{exits[i].function.get(), exits[i].input_nr}] = i;
  std::vector<bool> is_used(exits.size(), false);
  const auto collector = GradientCollector::make(exits);
  section.visit_exits(roots, [&](Edge& edge) {
    const auto place = places.find({edge.function.get(), edge.input_nr});
    if (place == places.end()) refuse_other_tensors("others");
    is_used[place->second] = true;
    edge = Edge(collector, place->second);
  });
  for (size_t i = num_inputs; i < exits.size(); ++i) {
    if (!is_used[i]) refuse_other_tensors("fewer");
  }
  return collector;
}

variable_list run_backward(const RecomputeBackward::Kept& kept, const variable_list& gradients) {
  check_unchanged(kept);
  variable_list results;
  variable_list leaves;
  leaves.reserve(kept.inputs.size());
  for (const auto& input : kept.inputs) {
    leaves.push_back(input.value.defined() ? input.value.detach().set_requires_grad(input.requires_grad)
                                           : input.value);
  }
  const GraphSection section;
  {
    const at::AutoGradMode with_gradients(true);
    const ForwardConditionsGuard conditions(kept.conditions);
    results = kept.function(leaves);
  }
  check_results(kept.results, results);
  edge_list roots = roots_of(results);
  edge_list exits = roots_of(leaves);
  const size_t num_inputs = exits.size();
  exits.insert(exits.end(), kept.exits.begin(), kept.exits.end());
  const auto collector = collect(section, exits, num_inputs, roots);
  results.clear();
  leaves.clear();
  torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
  return collector->take();
}

}  // namespace

std::vector<at::Tensor> as_leaves(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> leaves;
  leaves.reserve(inputs.size());
  for (const auto& input : inputs) {
    leaves.push_back(input.defined() ? input.detach().set_requires_grad(input.requires_grad()) : input);
  }
  return leaves;
}

int64_t version_of(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_inference() ? static_cast<int64_t>(tensor._version()) : 0;
}

int64_t version_of_leaf(const Edge& edge) {
  const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(edge.function.get());
  return leaf != nullptr ? version_of(leaf->variable) : 0;
}

ResultShape::ResultShape(const at::Tensor& tensor) : is_defined(tensor.defined()) {
  if (!is_defined) return;
  requires_grad = tensor.requires_grad();
  sizes = tensor.sizes().vec();
  dtype = tensor.scalar_type();
  device = tensor.device();
}

std::string ResultShape::describe() const {
  if (!is_defined) return "an undefined tensor";
  return c10::str(c10::toString(dtype), " ", at::IntArrayRef(sizes), " on ", device,
                  requires_grad ? " with" : " without", " a gradient");
}

variable_list RecomputeBackward::apply(variable_list&& gradients) {
  if (at::GradMode::is_enabled()) {
    throw InvalidArgument(
        "[recompute] backward with create_graph is not supported, as for derivatives of derivatives: compute "
        "what you differentiate twice without recompute()");
  }
  std::shared_ptr<const Kept> kept;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    kept = kept_;
  }
  if (kept == nullptr) {
    throw InvalidArgument(
        "[recompute] backward runs for a second time, but the first did not retain the graph: pass "
        "retain_graph to all backward passes but the last");
  }
  return run_backward(*kept, gradients);
}

void RecomputeBackward::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  kept_.reset();
}

}  // namespace lockstep
