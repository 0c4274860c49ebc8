#include "lockstep/runtime/gradients/bucketed_all_reduce.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

void BucketedAllReduce::begin_step() {
  gradients_.assign(buckets_.num_parameters(), {});
  arrivals_.clear();
  progress_.assign(buckets_.size(), {});
  for (size_t b = 0; b < progress_.size(); ++b) progress_[b].pending = buckets_.num_slots(b);
  next_bucket_ = 0;
}

void BucketedAllReduce::arrive(size_t parameter, const at::Tensor& gradient) {
  const bool is_first = !gradients_[parameter].arrived;
  gradients_[parameter] = {
      .arrived = true, .sparse = gradient.layout() != at::kStrided, .mark = TensorMark(gradient)};
  if (!is_first) return;
  arrivals_.push_back(parameter);
  --progress_[buckets_.bucket_of(parameter)].pending;
}

void BucketedAllReduce::withdraw(size_t parameter) {
  gradients_[parameter] = {};
  std::erase(arrivals_, parameter);
  ++progress_[buckets_.bucket_of(parameter)].pending;
}

void BucketedAllReduce::launch_next() {
  const at::NoGradGuard no_grad;
  for (const size_t i : arrivals_) {
    if (buckets_.bucket_of(i) == next_bucket_) gradients_[i].mark.excuse_writes();
  }
  Progress& bucket = progress_[next_bucket_];
  bucket.launched = true;
  std::vector<at::Tensor> tensors{buckets_.flat(next_bucket_)};
  bucket.work = channel_.device->allreduce(tensors, c10d::AllreduceOptions());
  ++next_bucket_;
}

int64_t BucketedAllReduce::launch_full() {
  int64_t launched = 0;
  for (; next_bucket_ < progress_.size() && progress_[next_bucket_].pending == 0; ++launched) launch_next();
  return launched;
}

int64_t BucketedAllReduce::launch_rest() {
  int64_t launched = 0;
  for (; next_bucket_ < progress_.size(); ++launched) launch_next();
  return launched;
}

void BucketedAllReduce::sum_buckets() const {
  const at::NoGradGuard no_grad;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    std::vector<at::Tensor> tensors{buckets_.flat(b)};
    works.push_back(channel_.device->allreduce(tensors, c10d::AllreduceOptions()));
  }
  for (const auto& work : works) work->wait(kNoTimeout);
}

void BucketedAllReduce::note_summed() {
  for (auto& bucket : progress_) bucket.launched = true;
  next_bucket_ = progress_.size();
}

/// Flags for each parameter (whether a gradient arrived, and whether it is sparse), then for each replica
/// (whether it wants the sums). Their sums tell every replica what the others have. They are separate from
/// the last bucket, because reading them there would make the host wait for the device.
at::Tensor BucketedAllReduce::flags(bool is_wanted) const {
  const size_t count = gradients_.size();
  const at::Tensor flags = at::zeros({static_cast<int64_t>(2 * count) + channel_.host->getSize()}, at::kInt);
  int32_t* values = flags.mutable_data_ptr<int32_t>();
  for (size_t i = 0; i < count; ++i) {
    values[i] = gradients_[i].arrived ? 1 : 0;
    values[count + i] = gradients_[i].sparse ? 1 : 0;
  }
  values[2 * count + static_cast<size_t>(channel_.host->getRank())] = is_wanted ? 1 : 0;
  return flags;
}

void BucketedAllReduce::read_flags(const at::Tensor& sums) {
  const size_t count = gradients_.size();
  const int32_t* values = sums.const_data_ptr<int32_t>();
  kinds_.assign(count, GradientKind::kNone);
  for (size_t i = 0; i < count; ++i) {
    if (values[i] != 0) kinds_[i] = values[count + i] == 0 ? GradientKind::kDense : GradientKind::kSparse;
  }
  std::vector<int> wanting;
  for (int rank = 0; rank < channel_.host->getSize(); ++rank) {
    if (values[2 * count + static_cast<size_t>(rank)] != 0) wanting.push_back(rank);
  }
  if (wanting.empty() || wanting.size() == static_cast<size_t>(channel_.host->getSize())) return;
  throw InvalidArgument(c10::str("[gradients] only replicas ", c10::Join(", ", wanting), " of ",
                                 channel_.host->getSize(),
                                 " are to use the gradients of a backward that others have dropped by "
                                 "zero_grad(): a backward that is dropped must reach some of the optimizer's "
                                 "parameters on every replica or on none"));
}

void BucketedAllReduce::wait(bool is_wanted) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> agreement{flags(is_wanted)};
  const auto agreed = channel_.host->allreduce(agreement, c10d::AllreduceOptions());
  for (auto& bucket : progress_) {
    if (!bucket.work) continue;
    bucket.work->wait(kNoTimeout);
    bucket.work.reset();
  }
  agreed->wait(kNoTimeout);
  read_flags(agreement[0]);
}

}  // namespace lockstep
