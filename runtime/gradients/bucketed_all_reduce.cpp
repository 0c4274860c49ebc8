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
  for (size_t b = 0; b < progress_.size(); ++b) {
    for (const size_t i : buckets_.members(b)) progress_[b].pending += buckets_.is_trained(i) ? 1 : 0;
  }
  sums_->reset();
  next_bucket_ = 0;
  next_to_fill_ = 0;
}

void BucketedAllReduce::arrive(size_t parameter, const at::Tensor& gradient) {
  const bool is_first = !gradients_[parameter].arrived;
  gradients_[parameter] = {
      .arrived = true, .sparse = gradient.layout() != at::kStrided, .mark = TensorMark(gradient)};
  if (!is_first) return;
  arrivals_.push_back(parameter);
  if (buckets_.has_slot(parameter)) --progress_[buckets_.bucket_of(parameter)].pending;
}

void BucketedAllReduce::withdraw(size_t parameter) {
  gradients_[parameter] = {};
  std::erase(arrivals_, parameter);
  if (buckets_.has_slot(parameter)) ++progress_[buckets_.bucket_of(parameter)].pending;
}

/// Fills the bucket, and its rounded copy if it has one.
void BucketedAllReduce::make_ready(size_t bucket) const {
  const at::NoGradGuard no_grad;
  if (fill_) fill_(bucket);
  buckets_.round(bucket);
}

void BucketedAllReduce::launch_next() {
  make_ready(next_bucket_);
  for (const size_t i : buckets_.members(next_bucket_)) gradients_[i].mark.excuse_writes();
  Progress& bucket = progress_[next_bucket_];
  bucket.launched = true;
  sums_->launch(next_bucket_);
  ++next_bucket_;
}

int64_t BucketedAllReduce::launch_full() {
  int64_t launched = 0;
  for (; next_bucket_ < progress_.size() && progress_[next_bucket_].pending == 0; ++launched) launch_next();
  return launched;
}

void BucketedAllReduce::fill_full() {
  for (; next_to_fill_ < progress_.size() && progress_[next_to_fill_].pending == 0; ++next_to_fill_)
    make_ready(next_to_fill_);
}

void BucketedAllReduce::fill_rest() {
  for (size_t bucket = next_bucket_; bucket < progress_.size(); ++bucket) make_ready(bucket);
}

int64_t BucketedAllReduce::launch_rest(bool may_wait) {
  // A replica without a batch launches all of its buckets here, and long before the others.
  constexpr size_t kMostInFlight = 2;
  int64_t launched = 0;
  for (; next_bucket_ < progress_.size(); ++launched) {
    if (may_wait) sums_->make_room(kMostInFlight);
    launch_next();
  }
  return launched;
}

void BucketedAllReduce::sum_buckets() const {
  const at::NoGradGuard no_grad;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    buckets_.round(b);  // a replay has written new gradients
    sums_->launch(b);
  }
  sums_->wait();
}

void BucketedAllReduce::note_summed() {
  for (auto& bucket : progress_) bucket.launched = true;
  next_bucket_ = progress_.size();
}

/// Flags for each parameter (whether a gradient arrived, and whether it is sparse), then for each replica
/// (whether it wants the sums), then one (whether this replica launches together with the others). Their sums
/// tell every replica what the others have. They are separate from the last bucket, because reading them
/// there would make the host wait for the device.
at::Tensor BucketedAllReduce::flags(const FinishOptions& options) const {
  const size_t count = gradients_.size();
  const auto size = static_cast<size_t>(channel_.host->getSize());
  const at::Tensor flags = at::zeros({static_cast<int64_t>(2 * count + size + 1)}, at::kInt);
  int32_t* values = flags.mutable_data_ptr<int32_t>();
  for (size_t i = 0; i < count; ++i) {
    values[i] = gradients_[i].arrived ? 1 : 0;
    values[count + i] = gradients_[i].sparse ? 1 : 0;
  }
  values[2 * count + static_cast<size_t>(channel_.host->getRank())] = options.is_wanted ? 1 : 0;
  values[2 * count + size] = options.launches_together ? 1 : 0;
  return flags;
}

BucketedAllReduce::Agreement BucketedAllReduce::begin_agreement(const FinishOptions& options) const {
  Agreement agreement{{flags(options)}, nullptr};
  agreement.work = channel_.host->allreduce(agreement.flags, c10d::AllreduceOptions());
  return agreement;
}

/// Returns whether any replica launches its buckets together with the others.
bool BucketedAllReduce::end_agreement(Agreement& agreement) {
  agreement.work->wait(kNoTimeout);
  const size_t count = gradients_.size();
  const int32_t* values = agreement.flags[0].const_data_ptr<int32_t>();
  kinds_.assign(count, GradientKind::kNone);
  for (size_t i = 0; i < count; ++i) {
    if (values[i] != 0) kinds_[i] = values[count + i] == 0 ? GradientKind::kDense : GradientKind::kSparse;
  }
  check_wanted(values + 2 * count);
  return values[2 * count + static_cast<size_t>(channel_.host->getSize())] != 0;
}

void BucketedAllReduce::check_wanted(const int32_t* is_wanted) const {
  std::vector<int> wanting;
  for (int rank = 0; rank < channel_.host->getSize(); ++rank) {
    if (is_wanted[rank] != 0) wanting.push_back(rank);
  }
  if (wanting.empty() || wanting.size() == static_cast<size_t>(channel_.host->getSize())) return;
  throw InvalidArgument(c10::str("[gradients] only replicas ", c10::Join(", ", wanting), " of ",
                                 channel_.host->getSize(),
                                 " are to use the gradients of a backward that others have dropped by "
                                 "zero_grad(): a backward that is dropped must reach some of the optimizer's "
                                 "parameters on every replica or on none"));
}

/// Blocks until every replica has called it.
void BucketedAllReduce::meet() const {
  std::vector<at::Tensor> nothing{at::zeros({1}, at::kInt)};
  channel_.host->allreduce(nothing, c10d::AllreduceOptions())->wait(kNoTimeout);
}

int64_t BucketedAllReduce::finish(const FinishOptions& options) {
  const at::NoGradGuard no_grad;
  int64_t launched = 0;
  if (options.launches_together) {
    fill_rest();
    auto agreement = begin_agreement(options);
    end_agreement(agreement);
    launched = launch_rest(/*may_wait=*/false);
    meet();
    sums_->wait();
    return launched;
  }
  launched = launch_rest(/*may_wait=*/true);
  auto agreement = begin_agreement(options);
  sums_->wait();  // on a CPU this thread computes them, before it waits for the other replicas
  if (end_agreement(agreement)) meet();
  return launched;
}

}  // namespace lockstep
