#include "lockstep/training/planning/internal/step_simulation.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "lockstep/runtime/gradients/bucket_layout.h"

namespace lockstep {
namespace {

using Kind = RecordedEvent::Kind;

// Parameters of a unit begin at multiples of it.
constexpr int64_t kUnitAlignment = 64;

int64_t rounded_up(int64_t number, int64_t unit) {
  return (number + unit - 1) / unit * unit;
}

size_t at(int number) {
  return static_cast<size_t>(number);
}

}  // namespace

StepSimulation::StepSimulation(const RecordedStep& record, const TrainingLayout& layout,
                               const MemoryPlan& kept)
    : record_(record), layout_(layout), kept_(kept), is_recomputed_(record.blocks.size(), false) {
  sizes_.reserve(record.allocations.size());
  for (const auto& allocation : record.allocations)
    sizes_.push_back(std::max<int64_t>(0, std::llround(allocation.bytes.at(layout.examples))));
  for (const size_t block : layout.recomputed) is_recomputed_[block] = true;
  find_units();
  find_uses();
  find_reductions();
  lay_out_buckets();
}

int64_t StepSimulation::bytes_of(int parameter) const {
  const auto& own = record_.parameters[at(parameter)];
  return own.elements * own.element_bytes;
}

bool StepSimulation::is_recomputed(int call) const {
  return is_recomputed_[at(record_.calls[at(call)].block)];
}

bool StepSimulation::is_in_unit(int parameter) const {
  const int block = record_.parameters[at(parameter)].block;
  return block >= 0 && is_unit(block);
}

void StepSimulation::find_units() {
  unit_bytes_.assign(record_.blocks.size(), 0);
  for (size_t i = 0; i < record_.parameters.size(); ++i) {
    const int block = record_.parameters[i].block;
    if (block >= 0) unit_bytes_[at(block)] += rounded_up(bytes_of(static_cast<int>(i)), kUnitAlignment);
  }
}

void StepSimulation::find_uses() {
  for (const auto& [kind, number] : record_.events) {
    const bool is_backward = kind == Kind::kBackwardBegins;
    if (kind != Kind::kBlockBegins && !is_backward) continue;
    if (is_unit(record_.calls[at(number)].block)) uses_.push_back({number, is_backward});
  }
}

/// A unit's gradients are complete with the last one of its parameters, and if the unit is used again in
/// backward, before that.
void StepSimulation::find_reductions() {
  reductions_.assign(record_.events.size(), -1);
  std::vector<int> last_gradient(record_.blocks.size(), -1);
  for (size_t event = 0; event < record_.events.size(); ++event) {
    const auto& [kind, number] = record_.events[event];
    if (kind != Kind::kGradient || record_.parameters[at(number)].block < 0) continue;
    last_gradient[at(record_.parameters[at(number)].block)] = static_cast<int>(event);
  }
  for (size_t i = 0; i < uses_.size(); ++i) {
    const auto& [call, is_backward] = uses_[i];
    if (!is_backward) continue;
    const auto& own = record_.calls[at(call)];
    const bool is_last =
        std::none_of(uses_.begin() + static_cast<int64_t>(i) + 1, uses_.end(),
                     [&](const Use& use) { return record_.calls[at(use.call)].block == own.block; });
    int event = last_gradient[at(own.block)];
    if (!is_last) {
      event = own.backward_ends_at;
      if (event < 0 && i + 1 < uses_.size())
        event = record_.calls[at(uses_[i + 1].call)].backward_begins_at - 1;
    }
    if (event < own.backward_begins_at) continue;  // frozen
    reductions_[at(event)] = call;
  }
}

/// In the order of the reducer's first layout, which stays if sums are divided.
void StepSimulation::lay_out_buckets() {
  bucket_of_.assign(record_.parameters.size(), -1);
  if (layout_.stage != 2 || layout_.replicas == 1) return;
  std::vector<BucketItem> items;
  std::vector<size_t> order;
  for (size_t i = 0; i < record_.parameters.size(); ++i) {
    items.push_back({bytes_of(static_cast<int>(i)), std::to_string(record_.parameters[i].element_bytes)});
  }
  for (size_t i = items.size(); i-- > 0;) {
    if (record_.parameters[i].is_trained) order.push_back(i);
  }
  for (const auto& members : assign_buckets(items, order, layout_.buckets)) {
    int64_t bytes = 0;
    for (const size_t i : members) {
      const auto& own = record_.parameters[i];
      bucket_of_[i] = static_cast<int>(bucket_bytes_.size());
      const bool is_rounded = layout_.summed_element_bytes > 0 && own.element_bytes >= 4;
      bytes += own.elements * (own.element_bytes + (is_rounded ? layout_.summed_element_bytes : 0));
    }
    bucket_bytes_.push_back(bytes);
    bucket_members_.push_back(static_cast<int>(members.size()));
  }
}

void StepSimulation::add(Part part, int64_t bytes) {
  now_.*part += bytes;
  total_ += bytes;
  if (total_ <= most_total_) return;
  most_ = now_;
  most_total_ = total_;
}

void StepSimulation::allocate(int allocation) {
  if (is_held_[at(allocation)]) return;
  is_held_[at(allocation)] = true;
  is_due_[at(allocation)] = false;
  const int64_t bytes = sizes_[at(allocation)];
  const bool is_gradient = record_.allocations[at(allocation)].parameter >= 0;
  now_.allocator += rounded_up(bytes, layout_.allocation_unit) - bytes;
  total_ += rounded_up(bytes, layout_.allocation_unit) - bytes;
  add(is_gradient ? &MemoryPlan::gradients : &MemoryPlan::activations, bytes);
}

void StepSimulation::drop(int allocation) {
  if (allocation < 0 || !is_held_[at(allocation)]) return;
  is_held_[at(allocation)] = false;
  is_due_[at(allocation)] = false;
  const int64_t bytes = sizes_[at(allocation)];
  const bool is_gradient = record_.allocations[at(allocation)].parameter >= 0;
  add(&MemoryPlan::allocator, bytes - rounded_up(bytes, layout_.allocation_unit));
  add(is_gradient ? &MemoryPlan::gradients : &MemoryPlan::activations, -bytes);
}

void StepSimulation::free(int allocation) {
  if (!is_held_[at(allocation)]) return;
  if (pins_[at(allocation)] > 0) {
    is_due_[at(allocation)] = true;
  } else {
    drop(allocation);
  }
}

void StepSimulation::pin(int allocation) {
  if (allocation >= 0) ++pins_[at(allocation)];
}

void StepSimulation::unpin(int allocation) {
  if (allocation < 0 || --pins_[at(allocation)] > 0) return;
  if (is_due_[at(allocation)]) drop(allocation);
}

void StepSimulation::begin(MicroBatchPlace place) {
  place_ = place;
  now_ = kept_;
  is_held_.assign(record_.allocations.size(), false);
  is_due_.assign(record_.allocations.size(), false);
  pins_.assign(record_.allocations.size(), 0);
  use_ = 0;
  whole_bytes_ = 0;
  sum_.reset();
  has_bucket_.assign(bucket_bytes_.size(), false);
  missing_ = bucket_members_;
  next_bucket_ = 0;
  const bool has_earlier = place == MicroBatchPlace::kMiddle || place == MicroBatchPlace::kLast;
  for (size_t i = 0; has_earlier && i < record_.parameters.size(); ++i) {
    const auto& own = record_.parameters[i];
    if (!own.is_trained) continue;
    const int64_t bytes = bytes_of(static_cast<int>(i));
    now_.gradients += is_in_unit(static_cast<int>(i)) ? bytes / layout_.replicas : bytes;
  }
  total_ = now_.peak();
  add(&MemoryPlan::activations, 0);
}

void StepSimulation::run(MicroBatchPlace place) {
  begin(place);
  for (int event = 0; event < static_cast<int>(record_.events.size()); ++event) {
    if (sum_ && event >= sum_->ends_at) end_sum();
    handle(event);
    if (const int call = reductions_[at(event)]; call >= 0) reduce(event, call);
  }
}

void StepSimulation::handle(int event) {
  const auto& [kind, number] = record_.events[at(event)];
  switch (kind) {
    case Kind::kAllocate:
      return allocate(number);
    case Kind::kFree:
      return free(number);
    case Kind::kBlockBegins:
      begin_use(number);
      if (is_recomputed(number)) pin(record_.calls[at(number)].input);
      return;
    case Kind::kBlockEnds:
      if (is_recomputed(number)) end_block(number);
      if (is_unit(record_.calls[at(number)].block)) end_use();
      return;
    case Kind::kForwardEnds:
      return;
    case Kind::kBackwardBegins:
      return begin_backward(event, number);
    case Kind::kBackwardEnds:
      return end_backward(number);
    case Kind::kGradient:
      return take_gradient(number);
  }
}

/// recompute() drops all that the block's forward has kept, but its result.
void StepSimulation::end_block(int call) {
  const auto& own = record_.calls[at(call)];
  for (int event = own.begins_at; event < own.ends_at; ++event) {
    const auto& [kind, number] = record_.events[at(event)];
    if (kind == Kind::kAllocate && number != own.output) drop(number);
  }
}

/// Computes the block again, if it is to be. What the recorded step has freed by now is not kept.
void StepSimulation::begin_backward(int event, int call) {
  begin_use(call);
  if (!is_recomputed(call)) return;
  const auto& own = record_.calls[at(call)];
  pin(own.output_gradient);
  if (own.output >= 0 && pins_[at(own.output)] == 0) drop(own.output);
  for (int i = own.begins_at; i < own.ends_at; ++i) {
    const auto& [kind, number] = record_.events[at(i)];
    if (kind == Kind::kAllocate) allocate(number);
    if (kind == Kind::kFree) free(number);
  }
  for (int i = own.begins_at; i < own.ends_at; ++i) {
    const auto& [kind, number] = record_.events[at(i)];
    const bool is_freed = kind == Kind::kAllocate && record_.allocations[at(number)].freed_at >= 0 &&
                          record_.allocations[at(number)].freed_at < event;
    if (is_freed) free(number);
  }
}

void StepSimulation::end_backward(int call) {
  if (!is_recomputed(call)) return;
  unpin(record_.calls[at(call)].input);
  unpin(record_.calls[at(call)].output_gradient);
  if (sum_) end_sum();  // recompute() waits for it
}

void StepSimulation::take_gradient(int parameter) {
  if (is_in_unit(parameter)) return;
  const int allocation = record_.parameters[at(parameter)].gradient;
  const bool has_earlier = place_ == MicroBatchPlace::kMiddle || place_ == MicroBatchPlace::kLast;
  const bool is_summed =
      layout_.replicas > 1 && (place_ == MicroBatchPlace::kOnly || place_ == MicroBatchPlace::kLast);
  if (is_summed) take_into_bucket(parameter);
  if (has_earlier || is_summed) drop(allocation);  // added to the one before, or copied
  if (has_earlier && is_summed) add(&MemoryPlan::gradients, -bytes_of(parameter));
}

/// One bucket fills while the one before it is summed.
void StepSimulation::take_into_bucket(int parameter) {
  const int bucket = bucket_of_[at(parameter)];
  if (bucket < 0) return;
  if (!has_bucket_[at(bucket)]) {
    has_bucket_[at(bucket)] = true;
    add(&MemoryPlan::buckets, bucket_bytes_[at(bucket)]);
  }
  --missing_[at(bucket)];
  for (; next_bucket_ < missing_.size() && missing_[next_bucket_] == 0; ++next_bucket_) {
    if (next_bucket_ > 0) add(&MemoryPlan::buckets, -bucket_bytes_[next_bucket_ - 1]);
  }
}

int StepSimulation::unit_of(size_t use) const {
  return use < uses_.size() ? record_.calls[at(uses_[use].call)].block : -1;
}

/// Sets the units that are whole.
void StepSimulation::set_whole(int first, int second) {
  if (layout_.replicas == 1) return;
  int64_t bytes = first < 0 ? 0 : unit_bytes_[at(first)];
  if (second >= 0 && second != first) bytes += unit_bytes_[at(second)];
  bytes /= layout_.replicas;  // which share them
  add(&MemoryPlan::gathered_units, bytes - std::exchange(whole_bytes_, bytes));
}

void StepSimulation::begin_use(int call) {
  const int block = record_.calls[at(call)].block;
  if (!is_unit(block)) return;
  ++use_;
  set_whole(block, layout_.overlaps_units ? unit_of(use_) : -1);
}

void StepSimulation::end_use() {
  set_whole(layout_.overlaps_units ? unit_of(use_) : -1, -1);
}

void StepSimulation::end_sum() {
  const Sum sum = *std::exchange(sum_, std::nullopt);
  add(&MemoryPlan::communication, -sum.sent - sum.own);
}

/// Gathers the gradients of a unit in one piece of memory, and sums them over the replicas.
void StepSimulation::reduce(int event, int call) {
  const auto& own = record_.calls[at(call)];
  if (sum_) end_sum();
  end_use();
  const int64_t bytes = unit_bytes_[at(own.block)];
  const bool is_alone = layout_.replicas == 1;
  add(is_alone ? &MemoryPlan::gradients : &MemoryPlan::communication, bytes);
  for (size_t i = 0; i < record_.parameters.size(); ++i) {
    if (record_.parameters[i].block == own.block) drop(record_.parameters[i].gradient);
  }
  if (is_alone) {
    const bool has_earlier = place_ == MicroBatchPlace::kMiddle || place_ == MicroBatchPlace::kLast;
    if (has_earlier) add(&MemoryPlan::gradients, -bytes);
    return;
  }
  const int64_t part = bytes / layout_.replicas;
  add(&MemoryPlan::communication, part);
  // In the middle of the next unit's backward, or at its end if all of it is one node of recompute().
  int ends_at = static_cast<int>(record_.events.size());
  if (use_ < uses_.size() && !is_recomputed(uses_[use_].call)) {
    const int middle = record_.calls[at(uses_[use_].call)].backward_middle_at;
    if (middle > event) ends_at = middle;
  }
  sum_ = Sum{bytes, part, ends_at};
}

}  // namespace lockstep
