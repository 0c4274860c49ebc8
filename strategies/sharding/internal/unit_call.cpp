#include "lockstep/strategies/sharding/internal/unit_call.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;
namespace autograd = torch::autograd::impl;

template <typename T, typename... Args>
std::shared_ptr<T> make_node(Args&&... args) {
  return {new T(std::forward<Args>(args)...), torch::autograd::deleteNode};
}

void refuse_create_graph() {
  if (!at::GradMode::is_enabled()) return;
  throw InvalidArgument(
      "[Sharded] backward with create_graph is not supported, as for derivatives of derivatives: the "
      "parameters that they depend on are freed");
}

/// Makes the parameters out of the shards.
class ParametersBackward final : public Node {
 public:
  explicit ParametersBackward(std::weak_ptr<UnitCall> call) : call_(std::move(call)) {}
  std::string name() const override { return "ShardedParametersBackward"; }
  variable_list apply(variable_list&& gradients) override {
    const auto call = call_.lock();
    if (call == nullptr) {
      throw InvalidArgument(
          "[Sharded] backward reached the parameters of a unit whose results are gone: return whatever has a "
          "gradient from the unit's forward, and keep it until backward");
    }
    return call->reduce(std::move(gradients));
  }

 private:
  std::weak_ptr<UnitCall> call_;  // The parameters, which the call owns, own this.
};

/// Passes the results' gradients on.
class ResultsBackward final : public Node {
 public:
  explicit ResultsBackward(std::shared_ptr<UnitCall> call) : call_(std::move(call)) {}
  std::string name() const override { return "ShardedResultsBackward"; }
  variable_list apply(variable_list&& gradients) override {
    call_->begin_backward();
    return std::move(gradients);
  }

 private:
  std::shared_ptr<UnitCall> call_;
};

/// Passes the inputs' gradients on when nothing else in the unit is left to compute.
class InputsBackward final : public Node {
 public:
  explicit InputsBackward(std::weak_ptr<UnitCall> call) : call_(std::move(call)) {}
  std::string name() const override { return "ShardedInputsBackward"; }
  variable_list apply(variable_list&& gradients) override {
    if (const auto call = call_.lock()) call->drop();
    return std::move(gradients);
  }

 private:
  std::weak_ptr<UnitCall> call_;
};

/// Returns the tensors with `node` as their history, which passes gradients on to theirs.
template <typename T>
std::vector<at::Tensor> pass_through(const std::shared_ptr<T>& node, std::vector<at::Tensor> tensors) {
  torch::autograd::edge_list edges;
  for (auto& tensor : tensors) {
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    edges.push_back(autograd::gradient_edge(tensor));
    tensor = tensor.detach();
    torch::autograd::create_gradient_edge(tensor, node);
  }
  node->set_next_edges(std::move(edges));
  return tensors;
}

/// Lets go of a call's parameters when it is destroyed.
class DropAtEnd {
 public:
  explicit DropAtEnd(std::shared_ptr<UnitCall> call) : call_(std::move(call)) {}
  ~DropAtEnd() { call_->drop(); }
  DropAtEnd(const DropAtEnd&) = delete;
  DropAtEnd& operator=(const DropAtEnd&) = delete;

 private:
  std::shared_ptr<UnitCall> call_;
};

bool any_requires_grad(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const auto& tensor) { return tensor.defined() && tensor.requires_grad(); });
}

}  // namespace

UnitCall::UnitCall(std::shared_ptr<ShardedUnit> unit) : unit_(std::move(unit)) {}

std::shared_ptr<UnitCall> UnitCall::begin(std::shared_ptr<ShardedUnit> unit) {
  const std::shared_ptr<UnitCall> call(new UnitCall(std::move(unit)));
  const auto shards = call->unit_->shards();
  torch::autograd::edge_list edges;
  std::shared_ptr<Node> node;
  if (at::GradMode::is_enabled() && any_requires_grad(shards)) {
    for (size_t i = 0; i < shards.size(); ++i) {
      if (!shards[i].requires_grad()) continue;
      call->places_.push_back(i);
      edges.push_back(autograd::gradient_edge(shards[i]));
    }
    node = make_node<ParametersBackward>(call->weak_from_this());
    node->set_next_edges(std::move(edges));
    call->node_ = node;
  }
  call->versions_ = call->unit_->versions();
  call->drop_kept();
  call->hold();
  if (node) {
    const auto parameters = call->unit_->parameters();
    for (const size_t place : call->places_) node->add_input_metadata(parameters[place]);
  }
  return call;
}

UnitCall::~UnitCall() {
  drop();
  lead_nowhere();
}

std::vector<at::Tensor> UnitCall::watch(std::vector<at::Tensor> inputs) {
  if (!places_.empty() || !at::GradMode::is_enabled() || !any_requires_grad(inputs)) return inputs;
  return pass_through(make_node<InputsBackward>(weak_from_this()), std::move(inputs));
}

std::vector<at::Tensor> UnitCall::end(std::vector<at::Tensor> results) {
  unit_->check_unchanged();
  if (!at::GradMode::is_enabled() || !any_requires_grad(results)) {
    drop();
    return results;
  }
  results = pass_through(make_node<ResultsBackward>(shared_from_this()), std::move(results));
  if (!is_kept()) drop();
  return results;
}

/// Frees the unit that a recomputation has kept: the one that comes now computes before that one's backward.
void UnitCall::drop_kept() const {
  if (const auto units = unit_->replica_units()) {
    if (const auto kept = units->kept.lock()) kept->drop();
    units->kept.reset();
  }
}

/// A forward that runs within backward is a recomputation, whose last unit's backward follows at once.
bool UnitCall::is_kept() {
  if (unit_->options().keep_until_backward) return true;
  const auto units = unit_->replica_units();
  if (units == nullptr || torch::autograd::get_current_graph_task_id() == -1) return false;
  drop_kept();
  units->kept = weak_from_this();
  return true;
}

void UnitCall::hold() {
  if (!is_holding_) unit_->acquire();
  is_holding_ = true;
  lead_parameters();
}

void UnitCall::drop() noexcept {
  if (std::exchange(is_holding_, false)) unit_->release();
}

/// A unit may be used several times in a forward: the parameters lead to the call that computes with them.
void UnitCall::lead_parameters() {
  const auto node = node_.lock();
  const auto parameters = unit_->parameters();
  size_t next = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (node && next < places_.size() && places_[next] == i) {
      autograd::set_gradient_edge(parameters[i], {node, static_cast<uint32_t>(next++)});
    } else if (autograd::grad_fn_unsafe(parameters[i]) != nullptr) {
      autograd::set_gradient_edge(parameters[i], {});
    }
  }
}

void UnitCall::lead_nowhere() {
  const auto node = node_.lock();
  const auto parameters = unit_->parameters();
  for (const size_t place : places_) {
    if (node && autograd::grad_fn_unsafe(parameters[place]) == node.get())
      autograd::set_gradient_edge(parameters[place], {});
  }
}

void UnitCall::begin_backward() {
  refuse_create_graph();
  if (unit_->versions() != versions_) {
    throw InvalidArgument("[Sharded] a parameter of unit '" + unit_->options().name +
                          "' was changed in place between forward and backward, as by an optimizer's step");
  }
  const auto units = unit_->replica_units();
  if (units != nullptr && units->kept.lock().get() == this) {
    units->kept.reset();  // It needs the parameters itself now.
  } else {
    drop_kept();
  }
  hold();
  // Backward may end without the parameters' gradients: if only other ones were asked for, or by an error,
  // after which no callback is called, but all are destroyed.
  torch::autograd::Engine::get_default_engine().queue_callback(
      [end = std::make_shared<DropAtEnd>(shared_from_this())] {});
}

variable_list UnitCall::reduce(variable_list&& gradients) {
  refuse_create_graph();
  std::vector<at::Tensor> all(unit_->parameters().size());
  for (size_t i = 0; i < places_.size(); ++i) all[places_[i]] = std::move(gradients[i]);
  gradients.clear();
  auto sums = unit_->reduce_scatter(std::move(all), is_holding_);
  drop();
  variable_list own;
  own.reserve(places_.size());
  for (const size_t place : places_) own.push_back(std::move(sums[place]));
  return own;
}

}  // namespace lockstep
