// Sums of which each replica gets a part.
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/gradients/flat_parameters.h"
#include "lockstep/runtime/gradients/gradient_reducer.h"
#include "lockstep/runtime/gradients/state_slice.h"

namespace lockstep {

namespace {

c10::intrusive_ptr<c10d::Backend> device_of(const std::optional<ReplicaBackends>& ranks) {
  return ranks ? ranks->device : c10::intrusive_ptr<c10d::Backend>();
}

}  // namespace

std::unique_ptr<BucketSums> GradientReducer::make_sums() const {
  if (!options_.sharding) return make_whole_sums(buckets_);
  const auto& [stage, parts, copies] = *options_.sharding;
  return std::make_unique<PartBucketSums>(buckets_, parts.device, device_of(copies),
                                          device_of(options_.copies_of_shards));
}

std::unique_ptr<BucketSums> GradientReducer::make_whole_sums(const GradientBuckets& buckets) const {
  return std::make_unique<WholeBucketSums>(buckets, channel_.device, device_of(options_.copies_of_shards));
}

/// The first layout stays for good, since it decides who owns what. Later ones add to it.
void GradientReducer::lay_out_parts() {
  if (statistics_.rebuilds == 1) {
    const auto& [stage, parts, copies] = *options_.sharding;
    buckets_.lay_out(
        parameters_, order_.current(), options_.buckets, options_.slot_alignment, parts.wire_dtype,
        BucketParts{
            .count = parts.device->getSize(), .own = parts.device->getRank(), .are_kept_apart = stage > 1});
  } else {
    if (const auto changed = buckets_.find_changed(parameters_))
      refuse_changed_parameter(options_.name_of(*changed));
    hooks_.reset();
    buckets_.extend(parameters_, order_.current());
  }
  statistics_.peak_bucket_bytes = std::max(statistics_.peak_bucket_bytes, buckets_.bytes());
}

void GradientReducer::allocate(size_t bucket) {
  if (!options_.sharding) return;
  buckets_.allocate(bucket);
  statistics_.peak_bucket_bytes = std::max(statistics_.peak_bucket_bytes, buckets_.bytes());
}

/// Gives a bucket that is about to be launched its memory, and zeros for gradients that have not arrived.
void GradientReducer::allocate_rest(size_t bucket) {
  const at::NoGradGuard no_grad;
  allocate(bucket);
  for (const size_t i : buckets_.members(bucket)) {
    if (!all_reduce_.has_arrived(i)) buckets_.slot(i).zero_();
  }
}

void GradientReducer::refuse_sparse(size_t index) const {
  throw InvalidArgument(
      c10::str("[sharding] expected dense gradients, but got a sparse one for ", options_.name_of(index),
               ": give the parameter to an optimizer of its own whose state is not sharded, "
               "or make its layer without sparse gradients"));
}

/// Makes every grad() a gradient whose sum is divided among the replicas.
void GradientReducer::put_back_parts() {
  is_gathered_ = false;
  const auto& kinds = all_reduce_.kinds();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!buckets_.is_trained(i)) continue;
    if (kinds[i] == GradientKind::kNone) {
      parameters_[i].mutable_grad().reset();
      old_sums_.forget(i);
      continue;
    }
    parameters_[i].mutable_grad() = is_in_parts(i) ? sharded_[i] : buckets_.slot(i);
    old_sums_.remember(i, parameters_[i].grad());
  }
}

void GradientReducer::gather() {
  if (!options_.sharding || options_.sharding->stage > 1 || is_gathered_ || phase_ != Phase::kSummed) return;
  const at::NoGradGuard no_grad;
  const auto gather_all = [this] {
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      if (!buckets_.is_in_parts(bucket)) continue;
      at::Tensor whole = buckets_.flat(bucket);
      at::Tensor part = buckets_.own_part(bucket);
      if (whole.numel() > 0) works.push_back(options_.sharding->parts.device->_allgather_base(whole, part));
    }
    for (const auto& work : works) work->wait(kNoTimeout);
  };
  is_recording() ? recording_->interrupt(gather_all) : gather_all();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_in_parts(i) || !parameters_[i].grad().is_same(sharded_[i])) continue;
    parameters_[i].mutable_grad() = buckets_.slot(i);
    old_sums_.remember(i, buckets_.slot(i));
  }
  is_gathered_ = true;
}

void GradientReducer::take_changes() {
  const at::NoGradGuard no_grad;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (!buckets_.is_in_parts(bucket)) continue;
    const int64_t length = buckets_.part_numel(bucket);
    const auto slices = slices_of({bucket, buckets_.parts().own * length, length}, buckets_.slots(bucket));
    for (const auto& slice : slices) {
      const size_t i = slice.parameter;
      const at::Tensor& gradient = parameters_[i].grad();
      if (!has_sum(i) || gradient.is_same(sharded_[i]) || gradient.is_same(buckets_.slot(i))) continue;
      if (gradient.layout() != at::kStrided) refuse_sparse(i);
      // In the order of the slot's memory, which may be another than that of the gradient.
      const at::Tensor& slot = buckets_.slot(i);
      buckets_.own_part(bucket)
          .narrow(0, slice.position - buckets_.parts().own * length, slice.length)
          .copy_(slice_of_values(gradient, {slot.sizes(), slot.strides()}, slice.offset, slice.length));
    }
  }
}

/// Makes gradients whose sum is divided undefined.
void GradientReducer::drop_parts() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].grad();
    if (!sharded_[i].defined() || !gradient.defined() || !gradient.is_same(sharded_[i])) continue;
    parameters_[i].mutable_grad().reset();
    old_sums_.forget(i);
  }
}

}  // namespace lockstep
