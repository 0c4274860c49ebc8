#include "lockstep/runtime/bucketed_all_reduce.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

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

/// For each parameter whether a gradient arrived, then for each whether it is sparse. Summed, they tell every
/// replica what the others have.
void BucketedAllReduce::write_flags() const {
  const auto count = static_cast<int64_t>(gradients_.size());
  const at::Tensor flags = at::zeros({2 * count}, at::kFloat);
  auto values = flags.accessor<float, 1>();
  for (int64_t i = 0; i < count; ++i) {
    const Gradient& gradient = gradients_[static_cast<size_t>(i)];
    values[i] = gradient.arrived ? 1.0F : 0.0F;
    values[count + i] = gradient.sparse ? 1.0F : 0.0F;
  }
  buckets_.flags().copy_(flags, /*non_blocking=*/true);
}

void BucketedAllReduce::launch_next() {
  const at::NoGradGuard no_grad;
  if (next_bucket_ + 1 == buckets_.size()) write_flags();
  for (const size_t i : arrivals_) {
    if (buckets_.bucket_of(i) == next_bucket_) gradients_[i].mark.excuse_writes();
  }
  Progress& bucket = progress_[next_bucket_];
  bucket.launched = true;
  std::vector<at::Tensor> tensors{buckets_.flat(next_bucket_)};
  bucket.work = backend_->allreduce(tensors, c10d::AllreduceOptions());
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

void BucketedAllReduce::wait() {
  for (auto& bucket : progress_) {
    if (!bucket.work) continue;
    bucket.work->wait(kNoTimeout);
    bucket.work.reset();
  }
}

std::vector<GradientKind> BucketedAllReduce::kinds() const {
  const at::Tensor flags = buckets_.flags().to(at::kCPU, at::kFloat);
  const auto values = flags.accessor<float, 1>();
  const auto count = static_cast<int64_t>(gradients_.size());
  std::vector<GradientKind> kinds(gradients_.size(), GradientKind::kNone);
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] == 0) continue;
    kinds[static_cast<size_t>(i)] = values[count + i] == 0 ? GradientKind::kDense : GradientKind::kSparse;
  }
  return kinds;
}

}  // namespace lockstep
