#include "lockstep/strategies/nn/sync_batch_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <ostream>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/nn/internal/sync_batch_norm_backward.h"

namespace lockstep {
namespace {

/// Returns every replica's `own` [n] as [replicas, n]. Blocks.
at::Tensor gather(c10d::Backend& backend, const at::Tensor& own, WaitClock& waits) {
  at::Tensor all = at::empty({backend.getSize(), own.size(0)}, own.options());
  at::Tensor input = own;
  const WaitClock::Wait wait(waits);
  backend._allgather_base(all, input)->wait();
  return all;
}

/// Returns the number of values per channel over all replicas, or only `own` if that is above 1: reading the
/// others' counts from the device requires a wait.
int64_t total_count(const at::Tensor& gathered, int64_t own) {
  return own > 1 ? own : gathered.select(1, gathered.size(1) - 1).sum().to(at::kLong).item<int64_t>();
}

}  // namespace

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  _check_input_dim(input);
  if (is_training() && replica_ != nullptr && replica_->num_replicas() > 1) return forward_on_replicas(input);
  if (is_training() && input.numel() == 0) {
    // Calls the operator, which leaves the running statistics unchanged here; the module's forward would
    // count a batch.
    return torch::batch_norm(input, weight, bias, running_mean, running_var, /*training=*/true,
                             options.momentum().value_or(0.0), options.eps(), /*cudnn_enabled=*/false);
  }
  return BatchNormImplBase::forward(input);
}

torch::Tensor SyncBatchNormImpl::forward_on_replicas(const torch::Tensor& input) {
  const auto backend = replica_->backend("SyncBatchNorm");
  SyncBatchNormCall call{
      .replica = replica_, .input = input, .weight = weight, .bias = bias, .eps = options.eps()};
  at::Tensor output;
  {
    const at::NoGradGuard no_grad;
    call.dense = input.contiguous(input.suggest_memory_format());
    const auto gathered =
        gather(*backend, batch_norm::local_statistics(call.dense, call.eps), replica_->waits());
    const int64_t total = total_count(gathered, batch_norm::count_of(input));
    if (total == 1) {
      throw InvalidArgument(
          c10::str("[SyncBatchNorm] expected more than 1 value a channel in the global batch while training, "
                   "but got 1 "
                   "(here: input ",
                   input.sizes(), "); for a last batch of one example use .drop_remainder = true"));
    }
    if (total > 1) {
      const batch_norm::RunningStatistics running{running_mean, running_var, count_batch()};
      call.statistics = batch_norm::combine(gathered, call.dense, running, call.eps);
    }
    output = batch_norm::normalize(call.dense, weight, bias, call.statistics, call.eps);
  }
  record_sync_batch_norm(call, output);
  return output;
}

/// Returns the weight of the new batch in the running statistics.
double SyncBatchNormImpl::count_batch() {
  if (!num_batches_tracked.defined()) return options.momentum().value_or(0.0);
  num_batches_tracked += 1;
  // Without a momentum, the running statistics are the mean over all batches.
  return options.momentum() ? *options.momentum() : 1.0 / num_batches_tracked.item<double>();
}

void SyncBatchNormImpl::_check_input_dim(const torch::Tensor& input) {
  if (input.dim() >= 2 && input.dim() <= 5 && input.size(1) == options.num_features()) return;
  throw InvalidArgument(c10::str("[SyncBatchNorm] expected a batch of 2 to 5 dimensions, [N, ",
                                 options.num_features(), ", ...], but got ", input.sizes()));
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "lockstep::SyncBatchNorm(" << options.num_features()
         << ", eps=" << options.eps() << ", momentum=";
  if (options.momentum()) {
    stream << *options.momentum();
  } else {
    stream << "None";
  }
  stream << ", affine=" << options.affine() << ", track_running_stats=" << options.track_running_stats()
         << ")";
}

}  // namespace lockstep
