#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/collectives.h"
#include "lockstep/runtime/collectives/internal/collective_description.h"
#include "lockstep/runtime/exchange/exchange_message.h"

namespace lockstep {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;
using Sizes = std::vector<int64_t>;

// All nodes call the differentiable functions, so that a gradient of the gradient (create_graph) is recorded
// like any other operation. They derive from Node instead of torch::autograd::Function, whose header takes as
// long to compile as everything else here.

at::Tensor gather_parts(const BackendPointer& backend, const at::Tensor& part, int64_t axis,
                        const Sizes& sizes);
at::Tensor scatter_parts(const BackendPointer& backend, ReduceOp op, const at::Tensor& tensor, int64_t axis,
                         const Sizes& sizes);
variable_list exchange(const BackendPointer& backend, const variable_list& tensors, const Sizes& rows);
at::Tensor exchange_equal(const BackendPointer& backend, const at::Tensor& parts);

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
  AllGatherBackward(BackendPointer backend, int64_t axis, Sizes sizes)
      : backend_(std::move(backend)), axis_(axis), sizes_(std::move(sizes)) {}

  std::string name() const override { return "AllGatherBackward"; }

  variable_list apply(variable_list&& gradients) override {
    fill_in_zeros(*this, gradients);
    return {scatter_parts(backend_, ReduceOp::kSum, gradients[0], axis_, sizes_)};
  }

 private:
  BackendPointer backend_;
  int64_t axis_;
  Sizes sizes_;  // of the ranks' parts
};

class ReduceScatterBackward final : public Node {
 public:
  ReduceScatterBackward(BackendPointer backend, ReduceOp op, int64_t axis, Sizes sizes)
      : backend_(std::move(backend)), op_(op), axis_(axis), sizes_(std::move(sizes)) {}

  std::string name() const override { return "ReduceScatterBackward"; }

  variable_list apply(variable_list&& gradients) override {
    fill_in_zeros(*this, gradients);
    const at::Tensor gradient = gather_parts(backend_, gradients[0], axis_, sizes_);
    return {op_ == ReduceOp::kMean ? gradient / backend_->getSize() : gradient};
  }

 private:
  BackendPointer backend_;
  ReduceOp op_;
  int64_t axis_;
  Sizes sizes_;
};

class AllToAllBackward final : public Node {
 public:
  AllToAllBackward(BackendPointer backend, Sizes rows)
      : backend_(std::move(backend)), rows_(std::move(rows)) {}

  std::string name() const override { return "AllToAllBackward"; }

  variable_list apply(variable_list&& gradients) override {
    fill_in_zeros(*this, gradients);
    return exchange(backend_, gradients, rows_);
  }

 private:
  BackendPointer backend_;
  Sizes rows_;  // of what the rank has sent to each rank
};

class EqualAllToAllBackward final : public Node {
 public:
  explicit EqualAllToAllBackward(BackendPointer backend) : backend_(std::move(backend)) {}

  std::string name() const override { return "EqualAllToAllBackward"; }

  variable_list apply(variable_list&& gradients) override {
    fill_in_zeros(*this, gradients);
    return {exchange_equal(backend_, gradients[0])};
  }

 private:
  BackendPointer backend_;
};

/// Returns other handles of the same memory. The threads of other ranks may keep what they get for a while:
/// not the results themselves, which get a place in a graph.
variable_list handles_of_results(const variable_list& results) {
  variable_list handles;
  for (const auto& result : results) handles.push_back(result.detach());
  return handles;
}

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

/// Returns the axis, counted from the front. Throws InvalidArgument if the tensor does not have it.
int64_t checked_axis(const char* operation, const at::Tensor& tensor, int64_t axis) {
  if (tensor.dim() == 0 || axis < -tensor.dim() || axis >= tensor.dim()) {
    throw InvalidArgument(std::string("[") + operation + "] expected an axis of a tensor with " +
                          std::to_string(tensor.dim()) + " dimensions, but got " + std::to_string(axis));
  }
  return axis < 0 ? axis + tensor.dim() : axis;
}

/// Returns the ranks' parts of a tensor along an axis, as views.
variable_list parts_of(const at::Tensor& tensor, int64_t axis, const Sizes& sizes) {
  variable_list parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(tensor.narrow(axis, begin, size));
    begin += size;
  }
  return parts;
}

at::Tensor empty_with(const at::Tensor& like, int64_t axis, int64_t size) {
  auto shape = like.sizes().vec();
  shape[static_cast<size_t>(axis)] = size;
  return at::empty(shape, like.options());
}

/// Returns the ranks' `part`s, of which rank r's has sizes[r] elements along the axis, one after another.
at::Tensor gather_parts(const BackendPointer& backend, const at::Tensor& part, int64_t axis,
                        const Sizes& sizes) {
  variable_list results{empty_with(part, axis, std::accumulate(sizes.begin(), sizes.end(), int64_t{0}))};
  {
    const at::NoGradGuard no_grad;
    std::vector<variable_list> outputs{parts_of(results[0], axis, sizes)};
    variable_list inputs{part.detach().resolve_conj().resolve_neg().contiguous()};
    backend->allgather(outputs, inputs)->wait();
  }
  if (is_recorded({part})) record<AllGatherBackward>({part}, results, backend, axis, sizes);
  return results[0];
}

/// Returns this rank's part of the sum or mean. Rank r's has sizes[r] elements along the axis.
at::Tensor scatter_parts(const BackendPointer& backend, ReduceOp op, const at::Tensor& tensor, int64_t axis,
                         const Sizes& sizes) {
  variable_list results{empty_with(tensor, axis, sizes[static_cast<size_t>(backend->getRank())])};
  {
    const at::NoGradGuard no_grad;
    const at::Tensor values = tensor.detach().resolve_conj().resolve_neg();
    std::vector<variable_list> inputs{parts_of(values, axis, sizes)};
    c10d::ReduceScatterOptions options;
    options.reduceOp = reduction_of(op);
    auto outputs = handles_of_results(results);
    backend->reduce_scatter(outputs, inputs, options)->wait();
  }
  if (is_recorded({tensor})) record<ReduceScatterBackward>({tensor}, results, backend, op, axis, sizes);
  return results[0];
}

/// Returns what the other ranks have sent, of which rank r's has rows[r] rows.
variable_list exchange(const BackendPointer& backend, const variable_list& tensors, const Sizes& rows) {
  variable_list results;
  Sizes sent;
  for (size_t rank = 0; rank < tensors.size(); ++rank) {
    results.push_back(empty_with(tensors[rank], 0, rows[rank]));
    sent.push_back(tensors[rank].size(0));
  }
  {
    const at::NoGradGuard no_grad;
    variable_list inputs;
    for (const auto& tensor : tensors) inputs.push_back(tensor.detach().resolve_conj().resolve_neg());
    auto outputs = handles_of_results(results);
    backend->alltoall(outputs, inputs)->wait();
  }
  if (is_recorded(tensors)) record<AllToAllBackward>(tensors, results, backend, sent);
  return results;
}

/// Sends row r of `parts` to rank r. Row s of the result is rank s's.
at::Tensor exchange_equal(const BackendPointer& backend, const at::Tensor& parts) {
  variable_list results{at::empty(parts.sizes(), parts.options())};
  {
    const at::NoGradGuard no_grad;
    at::Tensor sent = parts.detach().resolve_conj().resolve_neg().contiguous();
    Sizes equal;
    at::Tensor received = results[0].detach();
    backend->alltoall_base(received, sent, equal, equal)->wait();
  }
  if (is_recorded({parts})) record<EqualAllToAllBackward>({parts}, results, backend);
  return results[0];
}

/// Gathers numbers on the host. This waits for the other ranks, but for no device.
std::vector<at::Tensor> numbers_of_all(const ReplicaBackends& channel, const Sizes& own) {
  std::vector<at::Tensor> inputs{at::tensor(own, at::kLong)};
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < channel.host->getSize(); ++rank) all[0].push_back(at::empty_like(inputs[0]));
  channel.host->allgather(all, inputs)->wait();
  return all[0];
}

}  // namespace

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
  axis = checked_axis("all_gather", tensor, axis);
  if (channel.announce) channel.announce("all_gather along axis " + std::to_string(axis));
  Sizes sizes;
  for (const auto& size : numbers_of_all(channel, {tensor.size(axis)})) sizes.push_back(size.item<int64_t>());
  return gather_parts(channel.device, tensor, axis, sizes);
}

at::Tensor reduce_scatter(const BackendPointer& backend, ReduceOp op, const at::Tensor& tensor,
                          int64_t axis) {
  axis = checked_axis("reduce_scatter", tensor, axis);
  check_mean("reduce_scatter", reduction_of(op), {tensor});
  const int64_t size = tensor.size(axis);
  const int64_t ranks = backend->getSize();
  Sizes sizes;
  for (int64_t rank = 0; rank < ranks; ++rank) sizes.push_back(size / ranks + (rank < size % ranks ? 1 : 0));
  return scatter_parts(backend, op, tensor, axis, sizes);
}

std::vector<at::Tensor> all_to_all(const ReplicaBackends& channel, const std::vector<at::Tensor>& tensors) {
  const int ranks = channel.device->getSize();
  check_all_to_all(tensors, tensors, channel.device->getRank(), ranks);
  Sizes own;
  for (const auto& tensor : tensors) {
    checked_axis("all_to_all", tensor, 0);
    if (tensor.sizes().slice(1) != tensors[0].sizes().slice(1)) {
      throw InvalidArgument("[all_to_all] expected tensors that differ in the first dimension only, but got" +
                            describe("", tensors));
    }
    own.push_back(tensor.size(0));
  }
  if (channel.announce) channel.announce("all_to_all");
  // All tensors of all ranks must agree but for their rows.
  const at::Tensor like = tensors[0].slice(0, 0, 0);
  own.push_back(static_cast<int64_t>(fingerprint_of(describe("", {like}))));
  Sizes rows;
  for (const auto& numbers : numbers_of_all(channel, own)) {
    if (numbers[ranks].item<int64_t>() != own.back()) {
      throw CollectiveMismatch(
          "[all_to_all] replica " + std::to_string(rows.size()) +
          "'s tensors have another dtype or other dimensions after the first than replica " +
          std::to_string(channel.device->getRank()) + "'s:" + describe("", {tensors[0]}));
    }
    rows.push_back(numbers[channel.device->getRank()].item<int64_t>());
  }
  return exchange(channel.device, tensors, rows);
}

at::Tensor all_to_all(const BackendPointer& backend, const at::Tensor& tensor, int64_t split_axis,
                      int64_t concat_axis) {
  split_axis = checked_axis("all_to_all", tensor, split_axis);
  concat_axis = checked_axis("all_to_all", tensor, concat_axis);
  const int64_t ranks = backend->getSize();
  const int64_t size = tensor.size(split_axis);
  if (size % ranks != 0) {
    throw InvalidArgument("[all_to_all] expected a multiple of " + std::to_string(ranks) +
                          " along the split axis, one part for each replica, but got" +
                          describe("", {tensor}));
  }
  auto shape = tensor.sizes().vec();
  shape[static_cast<size_t>(split_axis)] = size / ranks;
  shape.insert(shape.begin() + split_axis, ranks);
  const at::Tensor parts = tensor.reshape(shape).movedim(split_axis, 0);
  return at::cat(exchange_equal(backend, parts).unbind(0), concat_axis);
}

at::Tensor gather_rows(const ReplicaBackends& channel, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return all_gather(channel, tensor, 0);
}

}  // namespace lockstep
