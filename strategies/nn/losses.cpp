#include "lockstep/strategies/nn/losses.h"

#include <ATen/ExpandUtils.h>
#include <c10/util/StringUtil.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

int64_t count_examples(ReplicaContext& replica, int64_t local) {
  if (replica.global_batch_size()) return *replica.global_batch_size();
  return replica.sum_on_host(local);
}

/// Returns `value` with the gradient of `source`.
torch::Tensor with_gradient_of(const torch::Tensor& source, const torch::Tensor& value) {
  return value.detach() + (source - source.detach());
}

}  // namespace

torch::Tensor sum_over_contexts(ReplicaContext& replica, const torch::Tensor& part) {
  torch::Tensor whole;
  for (const auto& axis : replica.axes()) {
    if (axis.role != AxisRole::kContext || axis.size == 1) continue;
    if (!whole.defined()) whole = part.detach().clone();
    replica.axis(axis.name).all_reduce_(ReduceOp::kSum, whole);
  }
  return whole.defined() ? with_gradient_of(part, whole) : part;
}

torch::Tensor compute_average_loss(ReplicaContext& replica, const torch::Tensor& losses,
                                   const AverageLossOptions& options) {
  if (losses.dim() == 0) {
    throw InvalidArgument(
        "[compute_average_loss] expected one loss an example, but got a scalar; compute the loss without "
        "reduction: by lockstep::cross_entropy, or with at::Reduction::None");
  }
  if (options.global_batch_size && *options.global_batch_size < 1) {
    throw InvalidArgument(
        c10::str("[compute_average_loss] expected a global batch size of 1 or more, but got ",
                 *options.global_batch_size));
  }
  const int64_t examples =
      options.global_batch_size ? *options.global_batch_size : count_examples(replica, losses.size(0));
  const torch::Tensor& weight = options.sample_weight;
  // [n] losses by [n, 1] weights would quietly become n * n products.
  if (weight.defined() && !at::is_expandable_to(weight.sizes(), losses.sizes())) {
    throw InvalidArgument(
        c10::str("[compute_average_loss] expected sample weights that broadcast to the losses' shape ",
                 losses.sizes(), ", but got ", weight.sizes()));
  }
  // Under autocast, losses may have a type too short to add many of them.
  const torch::Tensor exact =
      at::isReducedFloatingType(losses.scalar_type()) ? losses.to(torch::kFloat) : losses;
  const torch::Tensor weighted = weight.defined() ? exact * weight : exact;
  // Without examples on any replica, the result is the empty sum rather than 0/0.
  return sum_over_contexts(replica, weighted.sum() / std::max<int64_t>(examples, 1));
}

torch::Tensor scale_regularization_loss(const ReplicaContext& replica, const torch::Tensor& loss) {
  int contexts = 1;
  for (const auto& axis : replica.axes()) contexts *= axis.role == AxisRole::kContext ? axis.size : 1;
  const torch::Tensor of_replica = loss.sum() / replica.num_replicas();
  return contexts == 1 ? of_replica : with_gradient_of(of_replica / contexts, of_replica);
}

}  // namespace lockstep
