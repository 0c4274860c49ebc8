#include "lockstep/runtime/collectives/collectives.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/function.h>

#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/internal/collective_description.h"

namespace lockstep {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;
using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

// Both nodes sum with the differentiable all_reduce, so that a gradient of the gradient (create_graph) is
// recorded like any other operation. They derive from Node instead of torch::autograd::Function, whose header
// takes as long to compile as everything else here.

/// Other ranks may have a gradient for a result for which this rank has none.
void fill_in_zeros(const Node& node, variable_list& gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) gradients[i] = node.input_metadata(i).zeros_like();
  }
}

class AllReduceBackward final : public Node {
 public:
  AllReduceBackward(BackendPointer backend, ReduceOp op) : backend_(std::move(backend)), op_(op) {}

  std::string name() const override { return "AllReduceBackward"; }

  variable_list apply(variable_list&& gradients) override {
    fill_in_zeros(*this, gradients);
    return all_reduce(backend_, op_, gradients);
  }

 private:
  BackendPointer backend_;
  ReduceOp op_;
};

class AllGatherBackward final : public Node {
 public:
  AllGatherBackward(BackendPointer backend, int64_t axis, int64_t begin, int64_t length)
      : backend_(std::move(backend)), axis_(axis), begin_(begin), length_(length) {}

  std::string name() const override { return "AllGatherBackward"; }

  variable_list apply(variable_list&& gradients) override {
    fill_in_zeros(*this, gradients);
    return {all_reduce(backend_, ReduceOp::kSum, gradients)[0].narrow(axis_, begin_, length_)};
  }

 private:
  BackendPointer backend_;
  int64_t axis_;
  int64_t begin_;
  int64_t length_;
};

/// Whether a gradient flows from the results of an operation on `tensors` back to them.
bool is_recorded(const variable_list& tensors) {
  return at::GradMode::is_enabled() && torch::autograd::any_variable_requires_grad(tensors);
}

/// Makes a Backward the origin of `results`. It turns their gradients into those of `tensors`.
template <typename Backward, typename... Args>
void record(const variable_list& tensors, variable_list& results, Args&&... args) {
  const std::shared_ptr<Node> node(new Backward(std::forward<Args>(args)...), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(tensors));
  for (auto& result : results) torch::autograd::create_gradient_edge(result, node);
}

}  // namespace

void all_reduce_(c10d::Backend& backend, ReduceOp op, std::vector<at::Tensor> tensors) {
  const at::NoGradGuard no_grad;
  c10d::AllreduceOptions options;
  options.reduceOp = op == ReduceOp::kMean ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM;
  check_mean(options.reduceOp, tensors);
  backend.allreduce(tensors, options)->wait();
}

void broadcast_(c10d::Backend& backend, int source, std::vector<at::Tensor> tensors) {
  check_source(source, backend.getSize());
  const at::NoGradGuard no_grad;
  c10d::BroadcastOptions options;
  options.rootRank = source;
  backend.broadcast(tensors, options)->wait();
}

std::vector<at::Tensor> all_reduce(const BackendPointer& backend, ReduceOp op,
                                   const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> results;
  results.reserve(tensors.size());
  for (const auto& tensor : tensors) results.push_back(tensor.detach().clone());
  all_reduce_(*backend, op, results);
  // Integers have no gradients, and take no part in the others' sum.
  variable_list inputs;
  variable_list outputs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!torch::autograd::isDifferentiableType(tensors[i].scalar_type())) continue;
    inputs.push_back(tensors[i]);
    outputs.push_back(results[i]);
  }
  if (is_recorded(inputs)) record<AllReduceBackward>(inputs, outputs, backend, op);
  return results;
}

at::Tensor all_gather(const ReplicaBackends& channel, const at::Tensor& tensor, int64_t axis) {
  if (tensor.dim() == 0 || axis < -tensor.dim() || axis >= tensor.dim()) {
    throw InvalidArgument("[all_gather] expected an axis of a tensor with " + std::to_string(tensor.dim()) +
                          " dimensions, but got " + std::to_string(axis));
  }
  if (axis < 0) axis += tensor.dim();
  const at::Tensor own = tensor.detach().contiguous();
  const BackendPointer& backend = channel.device;
  if (channel.announce) channel.announce("all_gather along axis " + std::to_string(axis));

  // The host needs the sizes. This waits for the other ranks, but for no device.
  std::vector<at::Tensor> own_size{at::tensor({own.size(axis)}, at::kLong)};
  std::vector<std::vector<at::Tensor>> sizes(1);
  for (int rank = 0; rank < backend->getSize(); ++rank) sizes[0].push_back(at::empty_like(own_size[0]));
  channel.host->allgather(sizes, own_size)->wait();

  int64_t begin = 0;
  std::vector<std::vector<at::Tensor>> parts(1);
  for (int rank = 0; rank < backend->getSize(); ++rank) {
    std::vector<int64_t> shape = own.sizes().vec();
    const auto size = sizes[0][static_cast<size_t>(rank)].item<int64_t>();
    shape[static_cast<size_t>(axis)] = size;
    if (rank < backend->getRank()) begin += size;
    parts[0].push_back(at::empty(shape, own.options()));
  }
  std::vector<at::Tensor> inputs{own};
  backend->allgather(parts, inputs)->wait();

  variable_list results{at::cat(parts[0], axis)};
  if (is_recorded({tensor})) {
    record<AllGatherBackward>({tensor}, results, backend, axis, begin, tensor.size(axis));
  }
  return results[0];
}

at::Tensor gather_rows(const ReplicaBackends& channel, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return all_gather(channel, tensor, 0);
}

}  // namespace lockstep
