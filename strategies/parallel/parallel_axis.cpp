#include "lockstep/strategies/parallel/parallel_axis.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/function.h>

#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/collectives.h"
#include "lockstep/runtime/replicas/wait_clock.h"

namespace lockstep {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

enum class PartCollective : uint8_t { kCopy, kSum, kGather, kOwnPart, kGatherShards, kSumToShards };

at::Tensor apply_to_parts(PartCollective collective, const BackendPointer& backend, const at::Tensor& value,
                          int64_t dim);

/// Returns the collective that turns the result's gradient into that of the value.
PartCollective backward_of(PartCollective collective) {
  switch (collective) {
    case PartCollective::kCopy:
      return PartCollective::kSum;
    case PartCollective::kSum:
      return PartCollective::kCopy;
    case PartCollective::kGather:
      return PartCollective::kOwnPart;
    case PartCollective::kOwnPart:
      return PartCollective::kGather;
    case PartCollective::kGatherShards:
      return PartCollective::kSumToShards;
    default:
      return PartCollective::kGatherShards;
  }
}

class PartCollectiveBackward final : public Node {
 public:
  PartCollectiveBackward(PartCollective collective, BackendPointer backend, int64_t dim)
      : collective_(collective), backend_(std::move(backend)), dim_(dim) {}

  std::string name() const override { return "PartCollectiveBackward"; }

  variable_list apply(variable_list&& gradients) override {
    // Other ranks may have a gradient where this one has none.
    if (!gradients[0].defined()) gradients[0] = input_metadata(0).zeros_like();
    return {apply_to_parts(backward_of(collective_), backend_, gradients[0], dim_)};
  }

 private:
  PartCollective collective_;
  BackendPointer backend_;
  int64_t dim_;
};

at::Tensor computed(PartCollective collective, const BackendPointer& backend, const at::Tensor& value,
                    int64_t dim) {
  const at::NoGradGuard no_grad;
  const at::Tensor own = value.detach();
  switch (collective) {
    case PartCollective::kCopy:
      return own;
    case PartCollective::kSum: {
      at::Tensor sum = own.clone(at::MemoryFormat::Contiguous);
      all_reduce_(*backend, ReduceOp::kSum, {sum});
      return sum;
    }
    case PartCollective::kGather:
    case PartCollective::kGatherShards: {
      auto sizes = own.sizes().vec();
      sizes.insert(sizes.begin(), backend->getSize());
      const at::Tensor all = at::empty(sizes, own.options());
      all_gather_(*backend, all, own.contiguous());
      return at::cat(all.unbind(0), dim);
    }
    case PartCollective::kOwnPart: {
      const int64_t length = own.size(dim) / backend->getSize();
      return own.narrow(dim, backend->getRank() * length, length);
    }
    default: {
      // The ranks' shards one after another.
      const at::Tensor shards = at::stack(own.chunk(backend->getSize(), dim));
      at::Tensor shard = at::empty(shards.sizes().slice(1), own.options());
      reduce_scatter_(*backend, ReduceOp::kSum, shard, shards);
      return shard;
    }
  }
}

at::Tensor apply_to_parts(PartCollective collective, const BackendPointer& backend, const at::Tensor& value,
                          int64_t dim) {
  at::Tensor result = computed(collective, backend, value, dim);
  if (!at::GradMode::is_enabled() || !value.requires_grad()) return result;
  const std::shared_ptr<Node> node(new PartCollectiveBackward(collective, backend, dim),
                                   torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(value));
  torch::autograd::create_gradient_edge(result, node);
  return result;
}

/// Calls `collective` with the backend of the ranks along the axis, and counts the time as waiting.
template <typename Collective>
auto on_ranks(const ReplicaCollectives& replica, const std::string& layer, const std::string& axis,
              const Collective& collective) {
  const BackendPointer backend = replica.backends(layer, axis).device;
  const WaitClock::Wait wait(replica.waits());
  return collective(backend);
}

}  // namespace

ParallelAxis::ParallelAxis(std::string layer, const ReplicaAxis& axis, AxisRole role)
    : layer_(std::move(layer)), position_{axis.name(), axis.index(), axis.size(), axis.role()} {
  if (size() == 1 || axis.role() == role) return;
  const char* given = axis.role() == AxisRole::kModel ? "along which models are cut"
                      : axis.role() == AxisRole::kContext
                          ? "which cuts sequences: its ranks have different tokens"
                          : "which cuts the batch: its ranks have different examples";
  const char* expected = role == AxisRole::kModel     ? "along which models are cut, such as tensor"
                         : role == AxisRole::kContext ? "along which sequences are cut, such as context"
                                                      : "that cuts the batch, such as expert or data";
  throw InvalidArgument(c10::str("[", layer_, "] expected an axis ", expected, ", but got ",
                                 name().empty() ? "all replicas" : name(), ", ", given));
}

int64_t ParallelAxis::share_of(int64_t count, const std::string& what) const {
  const int64_t ranks = size();
  if (count >= ranks && count % ranks == 0) return count / ranks;
  const int64_t below = count / ranks * ranks;
  throw InvalidArgument(c10::str("[", layer_, "] expected ", what, " that the ", ranks,
                                 " ranks along the axis ", name(), " divide, but got ", count, ": ",
                                 below > 0 ? c10::str(below, " or ") : "", (below > 0 ? below : 0) + ranks,
                                 " would do"));
}

void ParallelAxis::bind(std::shared_ptr<const ReplicaCollectives> replica) {
  const AxisPosition& own = replica->position(layer_, name());
  if (own.size != size() || own.index != index()) {
    throw InvalidArgument(c10::str("[", layer_, "] expected part ", own.index, " of ", own.size,
                                   " along the axis ", name(), ", as the rank's place on it, but got part ",
                                   index(), " of ", size(),
                                   ": make the layer with the axis of the factory's own replica"));
  }
  replica_ = std::move(replica);
}

const ReplicaCollectives& ParallelAxis::bound() const {
  if (replica_ != nullptr) return *replica_;
  throw InvalidArgument("[" + layer_ +
                        "] expected a layer that belongs to a rank, but got one that does not: make it in "
                        "strategy.scope()");
}

RankRandom ParallelAxis::rank_random() const {
  return bound().rank_random(layer_);
}

ReplicaBackends ParallelAxis::backends() const {
  return bound().backends(layer_, name());
}

WaitClock& ParallelAxis::waits() const {
  return bound().waits();
}

void ParallelAxis::refuse_capture(const std::string& operation) const {
  bound().refuse_capture(layer_, operation);
}

torch::Tensor ParallelAxis::copy_to_parts(const torch::Tensor& value) const {
  if (size() == 1) return value;
  return on_ranks(bound(), layer_, name(), [&](const BackendPointer& backend) {
    return apply_to_parts(PartCollective::kCopy, backend, value, 0);
  });
}

torch::Tensor ParallelAxis::sum_of_parts(const torch::Tensor& part) const {
  if (size() == 1) return part;
  return on_ranks(bound(), layer_, name(), [&](const BackendPointer& backend) {
    return apply_to_parts(PartCollective::kSum, backend, part, 0);
  });
}

torch::Tensor ParallelAxis::gather_parts(const torch::Tensor& part, int64_t dim) const {
  if (size() == 1) return part;
  return on_ranks(bound(), layer_, name(), [&](const BackendPointer& backend) {
    return apply_to_parts(PartCollective::kGather, backend, part, at::maybe_wrap_dim(dim, part.dim()));
  });
}

torch::Tensor ParallelAxis::own_part(const torch::Tensor& value, int64_t dim) const {
  if (size() == 1) return value;
  dim = at::maybe_wrap_dim(dim, value.dim());
  share_of(value.size(dim), c10::str("a size of dimension ", dim));
  return on_ranks(bound(), layer_, name(), [&](const BackendPointer& backend) {
    return apply_to_parts(PartCollective::kOwnPart, backend, value, dim);
  });
}

torch::Tensor ParallelAxis::gather_shards(const torch::Tensor& shard, int64_t dim) const {
  if (size() == 1) return shard;
  return on_ranks(bound(), layer_, name(), [&](const BackendPointer& backend) {
    return apply_to_parts(PartCollective::kGatherShards, backend, shard,
                          at::maybe_wrap_dim(dim, shard.dim()));
  });
}

torch::Tensor ParallelAxis::sum_to_shards(const torch::Tensor& part, int64_t dim) const {
  if (size() == 1) return part;
  dim = at::maybe_wrap_dim(dim, part.dim());
  share_of(part.size(dim), c10::str("a size of dimension ", dim));
  return on_ranks(bound(), layer_, name(), [&](const BackendPointer& backend) {
    return apply_to_parts(PartCollective::kSumToShards, backend, part, dim);
  });
}

void ParallelAxis::maximum_(const torch::Tensor& value) const {
  if (size() == 1) return;
  const at::NoGradGuard no_grad;
  on_ranks(bound(), layer_, name(), [&](const BackendPointer& backend) {
    std::vector<at::Tensor> tensors{value};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    backend->allreduce(tensors, options)->wait();
  });
}

void ParallelAxis::sum_(const torch::Tensor& value) const {
  if (size() == 1) return;
  const at::NoGradGuard no_grad;
  on_ranks(bound(), layer_, name(),
           [&](const BackendPointer& backend) { all_reduce_(*backend, ReduceOp::kSum, {value}); });
}

}  // namespace lockstep
