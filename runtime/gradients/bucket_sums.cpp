#include "lockstep/runtime/gradients/bucket_sums.h"

#include <ATen/core/grad_mode.h>

namespace lockstep {

void WholeBucketSums::launch(size_t bucket) {
  const auto& backend = buckets_.has_shards(bucket) ? copies_ : backend_;
  std::vector<at::Tensor> tensors{buckets_.sent(bucket)};
  const bool is_summed = backend && tensors[0].numel() > 0;
  launched_.push_back({bucket, is_summed ? backend->allreduce(tensors, c10d::AllreduceOptions()) : nullptr});
}

void WholeBucketSums::wait() {
  const at::NoGradGuard no_grad;
  for (const auto& [bucket, work] : launched_) {
    if (work) work->wait(kNoTimeout);
    buckets_.take_back(bucket);
  }
  launched_.clear();
}

c10::intrusive_ptr<c10d::Work> PartBucketSums::begin_sum(size_t bucket) const {
  at::Tensor whole = buckets_.sent(bucket);
  if (whole.numel() == 0) return nullptr;
  if (buckets_.is_in_parts(bucket)) {
    at::Tensor part = buckets_.received_part(bucket);
    return parts_->_reduce_scatter_base(part, whole, c10d::ReduceScatterOptions());
  }
  std::vector<at::Tensor> tensors{whole};
  return copies_of_shards_ ? copies_of_shards_->allreduce(tensors, c10d::AllreduceOptions()) : nullptr;
}

void PartBucketSums::launch(size_t bucket) {
  launched_.push_back({bucket, begin_sum(bucket)});
}

/// Waits for the reduce-scatter of the next bucket. The ranks with the same part add theirs up afterwards.
void PartBucketSums::end_scatter() {
  auto& [bucket, work] = launched_[num_scattered_];
  if (work && buckets_.is_in_parts(bucket)) {
    work->wait(kNoTimeout);
    work.reset();
    if (copies_) {
      std::vector<at::Tensor> tensors{buckets_.received_part(bucket)};
      work = copies_->allreduce(tensors, c10d::AllreduceOptions());
    }
  }
  ++num_scattered_;
}

void PartBucketSums::end_sum() {
  const at::NoGradGuard no_grad;
  auto& [bucket, work] = launched_[num_summed_];
  if (work) work->wait(kNoTimeout);
  work.reset();
  if (buckets_.is_in_parts(bucket)) {
    buckets_.take_back_part(bucket);
    buckets_.release(bucket);
  } else {
    buckets_.take_back(bucket);
  }
  ++num_summed_;
}

// Frees the memory that sums between workers took, even if nothing else follows. A wait here could be a
// deadlock: another rank may launch its part of the sum only once this rank has joined a collective that
// comes later in its backward.
void PartBucketSums::advance() {
  const auto has_ended = [](const Launched& launched) {
    return !launched.work || launched.work->isCompleted();
  };
  while (num_scattered_ < launched_.size() && has_ended(launched_[num_scattered_])) end_scatter();
  while (num_summed_ < num_scattered_ && has_ended(launched_[num_summed_])) end_sum();
}

void PartBucketSums::make_room(size_t most) {
  if (!buckets_.parts().are_kept_apart) return;
  while (launched_.size() - num_summed_ > most) {
    if (num_scattered_ == num_summed_) end_scatter();
    end_sum();
  }
}

void PartBucketSums::wait() {
  while (num_scattered_ < launched_.size()) end_scatter();
  while (num_summed_ < launched_.size()) end_sum();
  reset();
}

void PartBucketSums::reset() {
  launched_.clear();
  num_scattered_ = 0;
  num_summed_ = 0;
}

}  // namespace lockstep
