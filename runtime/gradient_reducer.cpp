#include "lockstep/runtime/gradient_reducer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <numeric>

#include "lockstep/runtime/errors.h"
#include "lockstep/runtime/sparse_gradient.h"

namespace lockstep {

GradientReducer::GradientReducer(std::vector<at::Tensor> parameters,
                                 c10::intrusive_ptr<c10d::Backend> backend, Options options)
    : parameters_(std::move(parameters)),
      backend_(std::move(backend)),
      options_(std::move(options)),
      order_(parameters_.size()),
      old_sums_(parameters_.size()) {
  // Backward reaches the parameters roughly in the reverse of the order that forward used them in.
  std::iota(order_.rbegin(), order_.rend(), size_t{0});
  lay_out();
  install_hooks();
}

GradientReducer::~GradientReducer() {
  remove_hooks();
}

GradientReducer::Signature GradientReducer::signature_of(size_t index) const {
  const at::Tensor& parameter = parameters_[index];
  return {parameter.scalar_type(), parameter.device(), parameter.sizes().vec(), parameter.strides().vec(),
          parameter.requires_grad()};
}

bool GradientReducer::layout_is_current() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i];
    const Signature& seen = signatures_[i];
    if (parameter.scalar_type() != seen.dtype || parameter.device() != seen.device ||
        parameter.requires_grad() != seen.requires_grad || parameter.sizes() != seen.sizes ||
        parameter.strides() != seen.strides) {
      return false;
    }
    // Replacing a parameter's data drops its accumulator, and with it our hook.
    if (seen.requires_grad && torch::autograd::impl::try_get_grad_accumulator(parameter) != accumulators_[i])
      return false;
  }
  return true;
}

void GradientReducer::lay_out() {
  ++statistics_.rebuilds;
  signatures_.clear();
  slots_.assign(parameters_.size(), Slot{});
  buckets_.clear();
  std::vector<BucketItem> items(parameters_.size());
  std::vector<size_t> trained;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    signatures_.push_back(signature_of(i));
    const auto& parameter = parameters_[i];
    items[i] = {static_cast<int64_t>(parameter.nbytes()),
                fmt::format("{} {}", c10::toString(parameter.scalar_type()), parameter.device().str())};
  }
  for (const size_t i : order_) {
    slots_[i].trained = parameters_[i].requires_grad();
    if (slots_[i].trained) trained.push_back(i);
  }
  const auto groups = assign_buckets(items, trained, options_.buckets);
  for (size_t b = 0; b < groups.size(); ++b) {
    Bucket bucket;
    bucket.members = groups[b];
    bucket.pending = bucket.members.size();
    int64_t numel = 0;
    for (const size_t i : bucket.members) numel += parameters_[i].numel();
    const int64_t num_flags = b + 1 == groups.size() ? 2 * static_cast<int64_t>(parameters_.size()) : 0;
    const at::NoGradGuard no_grad;
    bucket.flat =
        at::zeros({numel + num_flags},
                  parameters_[bucket.members[0]].options().requires_grad(false).layout(at::kStrided));
    int64_t offset = 0;
    for (const size_t i : bucket.members) {
      const at::Tensor& parameter = parameters_[i];
      slots_[i].bucket = b;
      slots_[i].view = at::empty({0}, bucket.flat.options());
      const bool dense = parameter.is_non_overlapping_and_dense();
      slots_[i].view.set_(bucket.flat.storage(), offset, parameter.sizes(),
                          dense ? parameter.strides() : at::empty(parameter.sizes(), at::kMeta).strides());
      offset += parameter.numel();
    }
    if (num_flags > 0) flags_ = bucket.flat.narrow(0, numel, num_flags);
    buckets_.push_back(std::move(bucket));
  }
}

void GradientReducer::install_hooks() {
  accumulators_.resize(parameters_.size());
  hook_keys_.resize(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!slots_[i].trained) continue;
    accumulators_[i] = torch::autograd::impl::grad_accumulator(parameters_[i]);
    hook_keys_[i] = accumulators_[i]->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [this, i](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
          on_gradient(i);
          return outputs;
        }));
  }
}

void GradientReducer::remove_hooks() {
  for (size_t i = 0; i < accumulators_.size(); ++i) {
    if (accumulators_[i]) accumulators_[i]->del_post_hook(hook_keys_[i]);
  }
  accumulators_.clear();
}

void GradientReducer::prepare() {
  const bool current = layout_is_current();
  if (phase_ == Phase::kCollecting) {
    if (current) return;  // backward was in an earlier run, its sums are still awaited
    drop_gradients();
    drain();
  }
  if (current && next_order_.empty()) return;
  if (!next_order_.empty()) order_ = std::exchange(next_order_, {});
  // Gradients keep the old buckets alive until somebody zeroes them.
  remove_hooks();
  lay_out();
  install_hooks();
}

bool GradientReducer::in_slot(size_t index) const {
  const at::Tensor& gradient = parameters_[index].grad();
  return gradient.defined() && gradient.layout() == at::kStrided && gradient.is_alias_of(slots_[index].view);
}

bool GradientReducer::holds_old_sum(size_t index, int64_t own_writes) const {
  const at::Tensor& gradient = parameters_[index].grad();
  // One more write than our own was the zeroing, in place.
  return old_sums_[index].is(gradient) && old_sums_[index].writes_to(gradient) <= own_writes;
}

void GradientReducer::refuse_old_sum(size_t index) const {
  throw InvalidArgument(fmt::format(
      "[gradients] {} still holds the sum of the step before, which would be summed over the replicas once "
      "more: call zero_grad() before the next backward",
      options_.name_of(index)));
}

void GradientReducer::on_gradient(size_t index) {
  if (!parameters_[index].grad().defined()) return;  // backward came by with nothing
  if (at::GradMode::is_enabled()) {
    throw InvalidArgument(
        "[gradients] backward with create_graph is not supported for parameters whose gradients are "
        "summed over replicas; use torch::autograd::grad for higher derivatives");
  }
  if (holds_old_sum(index, /*own_writes=*/1)) {
    if (phase_ == Phase::kSummed) refuse_old_sum(index);
    // No fault yet: a backward that passes through another optimizer's parameters on its way, as a GAN's
    // does, leaves gradients that nobody asks for. finish() refuses them.
    old_sums_[index] = TensorMark(parameters_[index].grad());
    return;
  }
  if (phase_ == Phase::kSummed) begin_step();
  if (was_zeroed(index)) drain();
  Slot& slot = slots_[index];
  if (buckets_[slot.bucket].launched) {
    throw InvalidArgument(fmt::format(
        "[gradients] a second gradient came for {} after the first one left to be summed; hold the earlier "
        "backward's gradients with `auto hold = replica.accumulate();`, or apply them or zero all of the "
        "optimizer's in between",
        options_.name_of(index)));
  }
  if (options_.is_accumulating()) {
    old_sums_[index] = {};
    return;
  }
  phase_ = Phase::kCollecting;
  take_in(index);
  if (slot.arrived) return;
  slot.arrived = true;
  arrivals_.push_back(index);
  if (--buckets_[slot.bucket].pending == 0) launch_full_buckets();
}

/// Makes grad() the parameter's slot in the bucket.
void GradientReducer::take_in(size_t index) {
  Slot& slot = slots_[index];
  const at::Tensor& gradient = parameters_[index].grad();
  old_sums_[index] = {};
  if (gradient.layout() != at::kStrided) {
    slot.sparse = TensorMark(gradient);
    return;
  }
  if (in_slot(index)) return;
  if (gradient.sizes() != slot.view.sizes() || gradient.scalar_type() != slot.view.scalar_type()) {
    throw InvalidArgument(
        fmt::format("[gradients] {} changed its shape or dtype within a step", options_.name_of(index)));
  }
  const at::NoGradGuard no_grad;
  slot.view.copy_(gradient);
  parameters_[index].mutable_grad() = slot.view;
}

void GradientReducer::begin_step() {
  phase_ = Phase::kIdle;
  next_bucket_ = 0;
  arrivals_.clear();
  for (auto& slot : slots_) {
    slot.arrived = false;
    slot.sparse = {};
  }
  for (auto& bucket : buckets_) {
    bucket.pending = bucket.members.size();
    bucket.launched = false;
    bucket.work.reset();
  }
}

/// Whether all gradients collected so far have been made undefined since, but for the one that `newcomer`
/// just got: nobody will ask for their sums.
bool GradientReducer::was_zeroed(std::optional<size_t> newcomer) const {
  if (arrivals_.empty()) return false;
  return std::all_of(arrivals_.begin(), arrivals_.end(), [&](size_t i) {
    if (i != newcomer) return !parameters_[i].grad().defined();
    return slots_[i].sparse.is_set() ? !slots_[i].sparse.is(parameters_[i].grad()) : !in_slot(i);
  });
}

/// Ends a step whose sums nobody will ask for. Its other buckets leave too, so that all replicas have
/// launched the same ones, and all are waited for, since others read and write them.
void GradientReducer::drain() {
  for (; next_bucket_ < buckets_.size(); ++next_bucket_) launch(buckets_[next_bucket_], false);
  for (auto& bucket : buckets_) bucket.work->wait(kNoTimeout);
  begin_step();
}

void GradientReducer::drop_gradients() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (slots_[i].trained && (slots_[i].sparse.is_set() || in_slot(i))) parameters_[i].mutable_grad().reset();
  }
}

void GradientReducer::write_flags() {
  const auto count = static_cast<int64_t>(parameters_.size());
  at::Tensor flags = at::zeros({2 * count}, at::kFloat);
  auto values = flags.accessor<float, 1>();
  for (int64_t i = 0; i < count; ++i) {
    const Slot& slot = slots_[static_cast<size_t>(i)];
    values[i] = slot.arrived ? 1.0F : 0.0F;
    values[count + i] = slot.sparse.is_set() ? 1.0F : 0.0F;
  }
  flags_.copy_(flags, /*non_blocking=*/true);
}

void GradientReducer::launch(Bucket& bucket, bool in_backward) {
  const at::NoGradGuard no_grad;
  if (&bucket == &buckets_.back()) write_flags();
  bucket.launched = true;
  std::vector<at::Tensor> tensors{bucket.flat};
  bucket.work = backend_->allreduce(tensors, c10d::AllreduceOptions());
  ++(in_backward ? statistics_.launched_in_backward : statistics_.launched_at_end);
}

void GradientReducer::launch_full_buckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].pending == 0)
    launch(buckets_[next_bucket_++], true);
}

/// Whether grad() still is what the last finish() left.
bool GradientReducer::sums_are_there() const {
  bool any = false;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!old_sums_[i].is_set()) continue;
    if (parameters_[i].grad().defined()) return true;
    any = true;
  }
  return !any;
}

void GradientReducer::check_untrained() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (slots_[i].trained || !parameters_[i].requires_grad() || !parameters_[i].grad().defined()) continue;
    throw InvalidArgument(
        fmt::format("[gradients] {} began to require a gradient within this run, so that its gradients are "
                    "not summed: change requires_grad between runs",
                    options_.name_of(i)));
  }
}

void GradientReducer::finish() {
  check_untrained();
  if (buckets_.empty() || (phase_ == Phase::kSummed && sums_are_there())) return;
  if (phase_ == Phase::kSummed) begin_step();
  if (was_zeroed(std::nullopt)) drain();
  phase_ = Phase::kCollecting;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Slot& slot = slots_[i];
    const bool has_gradient = parameters_[i].grad().defined();
    if (!slot.trained) continue;
    if (slot.arrived) {
      if (has_gradient || buckets_[slot.bucket].launched) continue;
      slot.arrived = false;  // zeroed alone
      slot.sparse = {};
    }
    // Gradients of held backwards arrive only here, where the last backward did not reach the parameter.
    if (has_gradient) {
      if (holds_old_sum(i, /*own_writes=*/0)) refuse_old_sum(i);
      take_in(i);
      slot.arrived = true;
      arrivals_.push_back(i);
    } else {
      slot.view.zero_();
    }
  }
  for (; next_bucket_ < buckets_.size(); ++next_bucket_) launch(buckets_[next_bucket_], false);
  for (auto& bucket : buckets_) bucket.work->wait(kNoTimeout);

  const at::Tensor flags = flags_.to(at::kCPU, at::kFloat);
  const auto values = flags.accessor<float, 1>();
  const auto count = static_cast<int64_t>(parameters_.size());
  sum_sparse(flags);
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<size_t>(i);
    if (!slots_[index].trained) continue;
    if (values[i] == 0) {
      parameters_[index].mutable_grad().reset();
      old_sums_[index] = {};
      continue;
    }
    if (values[count + i] == 0) parameters_[index].mutable_grad() = slots_[index].view;
    old_sums_[index] = TensorMark(parameters_[index].grad());
  }
  if (!order_is_final_) agree_on_order();
  phase_ = Phase::kSummed;
  for (auto& bucket : buckets_) bucket.work.reset();
}

void GradientReducer::sum_sparse(const at::Tensor& flags) {
  const auto values = flags.accessor<float, 1>();
  const auto count = static_cast<int64_t>(parameters_.size());
  for (int64_t i = 0; i < count; ++i) {
    if (values[count + i] == 0) continue;
    at::Tensor& parameter = parameters_[static_cast<size_t>(i)];
    if (!slots_[static_cast<size_t>(i)].sparse.is_set() && parameter.grad().defined()) {
      throw InvalidArgument(
          fmt::format("[gradients] {} has a dense gradient here and a sparse one on another replica",
                      options_.name_of(static_cast<size_t>(i))));
    }
    parameter.mutable_grad() = sum_sparse_gradient(*backend_, parameter, parameter.grad());
  }
}

/// The order of replica 0's first backward becomes everyone's, from the next run on. Parameters that did not
/// arrive go last.
void GradientReducer::agree_on_order() {
  std::vector<size_t> order = arrivals_;
  std::vector<char> seen(parameters_.size(), 0);
  for (const size_t i : order) seen[i] = 1;
  for (const size_t i : order_) {
    if (!seen[i]) order.push_back(i);
  }
  at::Tensor indices = at::empty({static_cast<int64_t>(order.size())}, at::kLong);
  std::copy(order.begin(), order.end(), indices.data_ptr<int64_t>());
  std::vector<at::Tensor> tensors{indices.to(parameters_[0].device())};
  backend_->broadcast(tensors, c10d::BroadcastOptions())->wait(kNoTimeout);
  indices = tensors[0].to(at::kCPU);
  const auto values = indices.accessor<int64_t, 1>();
  next_order_.resize(order.size());
  for (int64_t i = 0; i < indices.numel(); ++i)
    next_order_[static_cast<size_t>(i)] = static_cast<size_t>(values[i]);
  if (next_order_ == order_) next_order_.clear();
  order_is_final_ = true;
}

void GradientReducer::mark_applied() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].grad();
    if (old_sums_[i].is(gradient)) old_sums_[i] = TensorMark(gradient);
  }
  begin_step();
}

void GradientReducer::reset() {
  if (phase_ == Phase::kCollecting) drop_gradients();
  begin_step();
}

}  // namespace lockstep
