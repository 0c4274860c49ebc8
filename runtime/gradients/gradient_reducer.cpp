#include "lockstep/runtime/gradients/gradient_reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/internal/sparse_gradient.h"
#include "lockstep/runtime/gradients/pending_gradient.h"

namespace lockstep {

GradientReducer::GradientReducer(std::vector<at::Tensor> parameters, ReplicaBackends channel, Options options)
    : parameters_(std::move(parameters)),
      channel_(std::move(channel)),
      options_(std::move(options)),
      order_(parameters_.size()),
      all_reduce_(
          buckets_, channel_, [this](size_t bucket) { fill(bucket); }, make_sums()),
      to_fill_(parameters_.size()),
      is_outside_(parameters_.size()),
      old_sums_(parameters_.size()) {
  expect_kinds();
  lay_out();
}

GradientReducer::~GradientReducer() {
  hooks_.reset();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].grad();
    if (gradient.defined() && (gradient.is_same(pending_[i]) || gradient.is_same(sharded_[i])))
      parameters_[i].mutable_grad().reset();
  }
}

void GradientReducer::refuse_old_sum(size_t index) const {
  throw InvalidArgument(c10::str("[gradients] ", options_.name_of(index),
                                 " still holds the sum of the step before, which would be summed over the "
                                 "replicas once more: call zero_grad() before the next backward"));
}

void GradientReducer::on_gradient(size_t index) {
  // Backward passed without a gradient.
  if (!parameters_[index].grad().defined() || parameters_[index].grad().is_same(pending_[index])) return;
  check_single_owner(index);
  if (at::GradMode::is_enabled()) {
    throw InvalidArgument(
        "[gradients] backward with create_graph is not supported for parameters whose gradients are "
        "summed over replicas; use torch::autograd::grad for higher derivatives");
  }
  if (old_sums_.contain(index, parameters_[index].grad(), /*own_writes=*/1)) {
    if (phase_ == Phase::kSummed) refuse_old_sum(index);
    // Not an error yet: a backward that passes through another optimizer's parameters, as a GAN's does,
    // leaves gradients that nobody asks for. finish() refuses them.
    old_sums_.remember(index, parameters_[index].grad());
    return;
  }
  if (phase_ == Phase::kSummed) end_step();
  if (was_zeroed(index)) drain();
  if (all_reduce_.has_left(index)) {
    throw InvalidArgument(c10::str(
        "[gradients] a second gradient came for ", options_.name_of(index),
        " after the first one left to be summed; hold the earlier backward's gradients with `auto "
        "hold = replica.accumulate();`, or apply them or drop them all by zero_grad() in between, which must "
        "leave them undefined, as it does unless told otherwise"));
  }
  if (options_.is_accumulating()) {
    old_sums_.forget(index);
    return;
  }
  phase_ = Phase::kCollecting;
  if (!is_captured_ && !is_recording() && settling_steps_ == 0) all_reduce_.advance();
  take_in(index);
  if (is_recording() || settling_steps_ > 0) return all_reduce_.fill_full();
  statistics_.launched_in_backward += all_reduce_.launch_full();
}

/// Another optimizer's reducer has taken the gradient before this one.
void GradientReducer::check_single_owner(size_t index) const {
  if (!is_pending(parameters_[index].grad())) return;
  throw InvalidArgument(c10::str("[gradients] ", options_.name_of(index),
                                 " belongs to two optimizers that scope() has made, which would both sum its "
                                 "gradient: destroy the one that you do not use"));
}

/// Copies the gradient into the parameter's slot in its bucket, on GPUs once the bucket is filled. Until the
/// sum is there, grad() cannot be used.
void GradientReducer::take_in(size_t index) {
  const at::Tensor& gradient = parameters_[index].grad();
  old_sums_.forget(index);
  to_fill_[index].reset();
  if (gradient.layout() != at::kStrided && options_.sharding) refuse_sparse(index);
  if (gradient.layout() != at::kStrided || is_outside(index)) {
    all_reduce_.arrive(index, gradient);
    return;
  }
  if (!buckets_.holds(index, gradient)) {
    const at::Tensor& slot = buckets_.slot(index);
    if (gradient.sizes() != slot.sizes() || gradient.scalar_type() != slot.scalar_type()) {
      throw InvalidArgument(
          c10::str("[gradients] ", options_.name_of(index), " changed its shape or dtype within a step"));
    }
    if (!gradient.is_cpu()) {
      to_fill_[index] = gradient;  // an accelerator needs as long to start a small copy as to make it
    } else {
      const at::NoGradGuard no_grad;
      allocate(buckets_.bucket_of(index));
      slot.copy_(gradient);  // while it is in the cache
    }
  }
  parameters_[index].mutable_grad() = pending_[index];
  all_reduce_.arrive(index, pending_[index]);
}

void GradientReducer::fill(size_t bucket) {
  if (options_.sharding) allocate_rest(bucket);
  std::vector<at::Tensor> slots;
  std::vector<at::Tensor> gradients;
  for (const size_t i : buckets_.members(bucket)) {
    if (!to_fill_[i].defined()) continue;
    slots.push_back(buckets_.slot(i));
    gradients.push_back(std::exchange(to_fill_[i], {}));
  }
  if (gradients.empty()) return;
  const at::NoGradGuard no_grad;
  at::_foreach_copy_(slots, gradients);
}

void GradientReducer::begin_step() {
  phase_ = Phase::kIdle;
  to_fill_.assign(parameters_.size(), {});
  all_reduce_.begin_step();
}

/// Leaves a step that is summed. Each replica does so before it takes in the next step's first gradient, and
/// so all have the same layout in the same step, whenever they begin it.
void GradientReducer::end_step() {
  begin_step();
  if (is_outdated()) rearrange();
}

/// Whether all gradients collected so far, except the one that `newcomer` just got, have been made undefined
/// since, so that nobody will ask for their sums.
bool GradientReducer::was_zeroed(std::optional<size_t> newcomer) const {
  const auto& arrivals = all_reduce_.arrivals();
  if (arrivals.empty()) return false;
  return std::all_of(arrivals.begin(), arrivals.end(), [&](size_t i) {
    const at::Tensor& gradient = parameters_[i].grad();
    if (i != newcomer) return !gradient.defined();
    return !all_reduce_.mark(i).is(gradient) && (all_reduce_.is_sparse(i) || !buckets_.holds(i, gradient));
  });
}

/// Ends a step whose sums nobody will ask for. Launches its other buckets too, so that all replicas have
/// launched the same ones, and waits for all of them, since other replicas read and write them.
void GradientReducer::drain() {
  finish_sums(/*is_wanted=*/false);
  begin_step();
}

void GradientReducer::drop_gradients() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!buckets_.has_slot(i) && !is_outside(i)) continue;
    const at::Tensor& gradient = parameters_[i].grad();
    if (all_reduce_.is_sparse(i) || buckets_.holds(i, gradient) || all_reduce_.mark(i).is(gradient))
      parameters_[i].mutable_grad().reset();
  }
}

void GradientReducer::check_untrained() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (is_summed(i) || !parameters_[i].requires_grad() || !parameters_[i].grad().defined()) continue;
    throw InvalidArgument(c10::str("[gradients] ", options_.name_of(i),
                                   " began to require a gradient within this run, so that its gradients are "
                                   "not summed: change requires_grad between runs"));
  }
}

void GradientReducer::finish() {
  check_untrained();
  const bool has_none = buckets_.size() == 0 && std::ranges::count(is_outside_, 0) == std::ssize(is_outside_);
  if (has_none || (phase_ == Phase::kSummed && old_sums_.are_there(parameters_))) return;
  if (phase_ == Phase::kSummed) end_step();
  if (was_zeroed(std::nullopt)) drain();
  phase_ = Phase::kCollecting;
  const at::NoGradGuard no_grad;
  take_in_rest();
  if (is_recording()) {
    all_reduce_.fill_rest();
    recording_->interrupt([this] { all_reduce_.sum_buckets(); });
    all_reduce_.note_summed();
  }
  finish_sums(/*is_wanted=*/true);
  if (options_.sharding) {
    put_back_parts();
  } else {
    put_back_sums();
    order_.agree(*channel_.host, all_reduce_.arrivals());
    note_kinds();
  }
  phase_ = Phase::kSummed;
}

void GradientReducer::finish_sums(bool is_wanted) {
  statistics_.launched_at_end +=
      all_reduce_.finish({.is_wanted = is_wanted, .launches_together = settling_steps_ > 0});
  if (settling_steps_ > 0) --settling_steps_;
}

/// A gradient whose bucket was launched belongs to the sum: other replicas are reading it, and a change here
/// would reach some replicas' sums and not others'. Sparse gradients are launched only in finish().
void GradientReducer::check_left_alone(size_t index) const {
  const at::Tensor& gradient = parameters_[index].grad();
  const TensorMark& left = all_reduce_.mark(index);
  if (all_reduce_.is_sparse(index)) {
    if (gradient.defined() && gradient.layout() != at::kStrided) return;
  } else if (left.is(gradient) && left.writes_to(gradient) == 0) {
    return;
  }
  throw InvalidArgument(c10::str("[gradients] ", options_.name_of(index), " was ",
                                 gradient.defined() ? "changed" : "zeroed",
                                 " after backward, while it was being summed over the replicas: call "
                                 "replica.reduce_gradients(optimizer) first, then change the sum"));
}

/// Takes in gradients that did not arrive by a hook, or were zeroed or replaced since.
void GradientReducer::take_in_rest() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_summed(i)) continue;
    const bool has_gradient = parameters_[i].grad().defined();
    if (all_reduce_.has_arrived(i)) {
      if (all_reduce_.has_left(i)) {
        check_left_alone(i);
        continue;
      }
      if (all_reduce_.mark(i).is(parameters_[i].grad())) continue;
      all_reduce_.withdraw(i);
      to_fill_[i].reset();
    }
    // Gradients of held backwards arrive only here if the last backward did not reach the parameter.
    if (has_gradient) {
      if (old_sums_.contain(i, parameters_[i].grad(), /*own_writes=*/0)) refuse_old_sum(i);
      take_in(i);
    } else if (!is_outside(i) && !is_in_parts(i)) {  // The others' slots may have no memory yet.
      buckets_.slot(i).zero_();
    }
  }
}

/// Makes every grad() the sum over all replicas.
void GradientReducer::put_back_sums() {
  const auto& kinds = all_reduce_.kinds();
  sum_sparse(kinds);
  sum_apart(kinds);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!buckets_.has_slot(i) && !is_outside(i)) continue;
    if (kinds[i] == GradientKind::kNone) {
      parameters_[i].mutable_grad().reset();
      old_sums_.forget(i);
      continue;
    }
    if (kinds[i] == GradientKind::kDense && !is_outside(i)) parameters_[i].mutable_grad() = buckets_.slot(i);
    old_sums_.remember(i, parameters_[i].grad());
  }
}

void GradientReducer::sum_sparse(const std::vector<GradientKind>& kinds) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (kinds[i] != GradientKind::kSparse) continue;
    at::Tensor& parameter = parameters_[i];
    if (!all_reduce_.is_sparse(i) && parameter.grad().defined()) {
      throw InvalidArgument(c10::str("[gradients] ", options_.name_of(i),
                                     " has a dense gradient here and a sparse one on another replica"));
    }
    parameter.mutable_grad() = sum_sparse_gradient(channel_, parameter, parameter.grad());
  }
}

/// Sums gradients that are dense although their parameters have no slots.
void GradientReducer::sum_apart(const std::vector<GradientKind>& kinds) {
  std::vector<size_t> dense;
  for (const size_t i : order_.current()) {
    if (is_outside(i) && kinds[i] == GradientKind::kDense) dense.push_back(i);
  }
  if (dense.empty()) return;
  // They required a gradient when backward ran, and may have been frozen since.
  std::vector<at::Tensor> trained = parameters_;
  for (const size_t i : dense) trained[i] = parameters_[i].detach().requires_grad_();
  GradientBuckets apart;
  apart.lay_out(trained, dense, options_.buckets, options_.slot_alignment, channel_.wire_dtype);
  for (const size_t i : dense) {
    if (parameters_[i].grad().defined()) apart.slot(i).copy_(parameters_[i].grad());
  }
  const auto sums = make_whole_sums(apart);
  for (size_t bucket = 0; bucket < apart.size(); ++bucket) apart.round(bucket);
  // As BucketedAllReduce::finish() does if replicas launch together: all of this has allocated memory.
  const auto meet = [this] {
    if (options_.settling_steps == 0) return;
    std::vector<at::Tensor> nothing{at::zeros({1}, at::kInt)};
    channel_.host->allreduce(nothing, c10d::AllreduceOptions())->wait(kNoTimeout);
  };
  meet();
  for (size_t bucket = 0; bucket < apart.size(); ++bucket) sums->launch(bucket);
  meet();
  sums->wait();
  for (const size_t i : dense) parameters_[i].mutable_grad() = apart.slot(i);
}

void GradientReducer::mark_applied() {
  if (options_.sharding) drop_parts();
  old_sums_.excuse_writes();
  phase_ == Phase::kSummed ? end_step() : begin_step();
}

void GradientReducer::reset() {
  if (phase_ == Phase::kCollecting) drop_gradients();
  begin_step();
  order_.reset();
  expect_kinds();
  for (size_t bucket = 0; options_.sharding && bucket < buckets_.size(); ++bucket) buckets_.release(bucket);
  hooks_.reset();  // prepare() lays the buckets out again
}

}  // namespace lockstep
