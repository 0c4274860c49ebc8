#include "lockstep/strategies/sharding/internal/unit_call.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/nn/internal/graph_section.h"

namespace lockstep {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;
namespace autograd = torch::autograd::impl;

}  // namespace

/// Passes the sums of the shards' gradients on once they are there.
class SumsBackward final : public LateNode {
 public:
  using LateNode::LateNode;
  std::string name() const override { return "ShardedSumsBackward"; }
  variable_list apply(variable_list&& sums) override {
    if (const auto sum = std::exchange(sum_, nullptr)) sum->unit->finish(*sum);
    return std::move(sums);
  }
  void expect(std::shared_ptr<UnitSum> sum) { sum_ = std::move(sum); }

 private:
  std::shared_ptr<UnitSum> sum_;
};

namespace {

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

bool is_in_backward() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

bool any_requires_grad(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const auto& tensor) { return tensor.defined() && tensor.requires_grad(); });
}

}  // namespace

UnitCall::UnitCall(std::shared_ptr<ShardedUnit> unit) : unit_(std::move(unit)) {}

std::shared_ptr<UnitCall> UnitCall::begin(std::shared_ptr<ShardedUnit> unit) {
  const std::shared_ptr<UnitCall> call(new UnitCall(std::move(unit)));
  call->recorded_from_ = at::sequence_number::peek();
  const auto node = call->record_gradients();
  call->versions_ = call->unit_->versions();
  call->drop_kept();
  call->begin_use(is_in_backward() ? UnitUse::Kind::kRecomputation : UnitUse::Kind::kForward);
  call->hold();
  call->begin_computing();
  if (node) {
    const auto parameters = call->unit_->parameters();
    for (const size_t place : call->places_) node->add_input_metadata(parameters[place]);
  }
  return call;
}

/// Returns the node that makes the parameters, or null if none of them has a gradient.
std::shared_ptr<Node> UnitCall::record_gradients() {
  const auto shards = unit_->shards();
  if (!at::GradMode::is_enabled() || !any_requires_grad(shards)) return nullptr;
  torch::autograd::edge_list edges;
  for (size_t i = 0; i < shards.size(); ++i) {
    if (!shards[i].requires_grad()) continue;
    places_.push_back(i);
    edges.push_back(autograd::gradient_edge(shards[i]));
  }
  // The sums are to be there in the middle of the backward that comes next, which is that of the unit before.
  if (const auto* own = units(); own != nullptr && unit_->options().overlap) {
    const auto [begin, end] = own->last_forward;
    const auto sums = make_node<SumsBackward>(begin + (end - begin) / 2);
    sums->set_next_edges(std::exchange(edges, {}));
    for (const size_t place : places_) edges.emplace_back(sums, sums->add_input_metadata(shards[place]));
    sums_node_ = sums;
  }
  const auto node = make_node<ParametersBackward>(weak_from_this());
  node->set_next_edges(std::move(edges));
  node_ = node;
  return node;
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
  const bool has_backward = at::GradMode::is_enabled() && any_requires_grad(results);
  if (has_backward)
    results = pass_through(make_node<ResultsBackward>(shared_from_this()), std::move(results));
  auto* own = units();
  if (own != nullptr) own->last_forward = {recorded_from_, at::sequence_number::peek()};
  if (!has_backward || !is_kept()) {
    if (own != nullptr) own->keep_for_next(unit_);
    drop();
  }
  end_computing();
  return results;
}

/// Returns the state that it shares with calls of other units; null if the unit is gathered from nobody.
ReplicaUnits* UnitCall::units() const {
  return unit_->options().size > 1 ? unit_->replica_units().get() : nullptr;
}

void UnitCall::begin_use(UnitUse::Kind kind) {
  if (auto* own = units()) own->begin_use(*unit_, kind);
}

void UnitCall::begin_computing() {
  if (auto* own = units()) {
    if (computing_ == nullptr) computing_ = own->begin_computing();
    own->gather_next();
  }
}

void UnitCall::end_computing() {
  computing_.reset();
  if (auto* own = units()) own->gather_next();
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
  if (units == nullptr || !is_in_backward()) return false;
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
  computing_.reset();
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
  begin_use(UnitUse::Kind::kBackward);
  hold();
  begin_computing();
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
  auto* shared = units();
  if (shared != nullptr) shared->finish_sum();
  const auto sum = unit_->begin_sum(std::move(all), is_holding_);
  drop();
  variable_list own;
  own.reserve(places_.size());
  for (const size_t place : places_) own.push_back(std::move(sum->sums[place]));
  const auto later = sums_node_.lock();
  // Anomaly mode looks at all values that nodes return.
  if (later == nullptr || torch::autograd::AnomalyMode::is_enabled()) {
    unit_->finish(*sum);
  } else {
    later->expect(sum);
    shared->begin_sum(sum);
  }
  end_computing();
  return own;
}

}  // namespace lockstep
