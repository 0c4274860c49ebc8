#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>

#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/collectives.h"

namespace lockstep {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// Tags of RendezvousBackend::send().
constexpr int kAlone = 0;
constexpr int kPromisesReply = 1;

/// The tag of the reply with a number.
int reply_tag(uint64_t number) {
  constexpr uint64_t kMostUnderWay = 1 << 30;
  return static_cast<int>(2 + number % kMostUnderWay);
}

/// Returns the number of the reply, if one is promised.
uint64_t send_value(const BackendPointer& backend, const at::Tensor& value, int destination, int tag) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> one{value.detach()};
  const auto work = backend->send(one, destination, tag);
  work->wait();
  return work->getSequencenumber();
}

uint64_t receive_value(const BackendPointer& backend, const at::Tensor& value, int source, int tag) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> one{value.detach()};
  const auto work = backend->recv(one, source, tag);
  work->wait();
  return work->getSequencenumber();
}

/// Receives the gradient of what was sent.
class SendBackward final : public Node {
 public:
  // It has the usual sequence number: the engine then runs all nodes in the reverse order of forward, on each
  // replica, and collectives stay in one order. In reverse, sends wait and receives do not, so backward has
  // no circle of waits if forward had none.
  SendBackward(BackendPointer backend, int destination, uint64_t number, const at::Tensor& value)
      : backend_(std::move(backend)),
        destination_(destination),
        number_(number),
        sizes_(value.sizes().vec()),
        options_(value.options().requires_grad(false)) {}

  std::string name() const override { return "SendBackward"; }

  variable_list apply(variable_list&&) override {
    const at::Tensor gradient = at::empty(sizes_, options_);
    receive_value(backend_, gradient, destination_, reply_tag(number_));
    return {gradient};
  }

 private:
  BackendPointer backend_;
  int destination_;
  uint64_t number_;
  std::vector<int64_t> sizes_;
  at::TensorOptions options_;
};

/// Sends the gradient of what was received back.
class ReceiveBackward final : public Node {
 public:
  ReceiveBackward(BackendPointer backend, int source, uint64_t number)
      : backend_(std::move(backend)), source_(source), number_(number) {}

  std::string name() const override { return "ReceiveBackward"; }

  variable_list apply(variable_list&& gradients) override {
    if (at::GradMode::is_enabled() && gradients[0].defined() && gradients[0].requires_grad()) {
      throw InvalidArgument(
          "[receive] expected backward without create_graph: messages can be differentiated once");
    }
    const at::Tensor gradient =
        gradients[0].defined() ? gradients[0] : input_metadata(0).zeros_like();  // the source waits for it
    send_value(backend_, gradient, source_, reply_tag(number_));
    return {};
  }

 private:
  BackendPointer backend_;
  int source_;
  uint64_t number_;
};

}  // namespace

at::Tensor send(const ReplicaBackends& channel, const at::Tensor& value, int destination) {
  const bool has_gradient = at::GradMode::is_enabled() && value.requires_grad();
  const uint64_t number =
      send_value(channel.host, value, destination, has_gradient ? kPromisesReply : kAlone);
  at::Tensor token = at::zeros({}, value.options().requires_grad(false));
  if (has_gradient) {
    const std::shared_ptr<Node> node(new SendBackward(channel.host, destination, number, value),
                                     torch::autograd::deleteNode);
    node->set_next_edges(torch::autograd::collect_next_edges(value));
    torch::autograd::create_gradient_edge(token, node);
  }
  return token;
}

void receive_(const ReplicaBackends& channel, const at::Tensor& value, int source) {
  receive_value(channel.host, value, source, kAlone);
}

at::Tensor receive(const ReplicaBackends& channel, int source, at::IntArrayRef sizes,
                   const at::TensorOptions& options) {
  const bool has_gradient = at::GradMode::is_enabled() && options.requires_grad();
  if (has_gradient && !torch::autograd::isDifferentiableType(c10::typeMetaToScalarType(options.dtype()))) {
    throw InvalidArgument("[receive] expected a floating-point dtype for a value that requires a gradient");
  }
  at::Tensor value = at::empty(sizes, options.requires_grad(false));
  const uint64_t number = receive_value(channel.host, value, source, has_gradient ? kPromisesReply : kAlone);
  if (has_gradient) {
    const std::shared_ptr<Node> node(new ReceiveBackward(channel.host, source, number),
                                     torch::autograd::deleteNode);
    torch::autograd::create_gradient_edge(value, node);
  }
  return value;
}

}  // namespace lockstep
