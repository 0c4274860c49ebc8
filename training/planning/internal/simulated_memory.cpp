#include "lockstep/training/planning/internal/simulated_memory.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

using Kind = RecordedEvent::Kind;

}  // namespace

SimulatedMemory::SimulatedMemory(const RecordedStep& record, const TrainingLayout& layout)
    : record_(record), allocation_unit_(layout.allocation_unit), is_recomputed_(record.blocks.size(), false) {
  sizes_.reserve(record.allocations.size());
  for (const auto& allocation : record.allocations)
    sizes_.push_back(std::max<int64_t>(0, std::llround(allocation.bytes.at(layout.examples))));
  for (const size_t block : layout.recomputed) is_recomputed_[block] = true;
}

int64_t SimulatedMemory::bytes_of_parameter(int parameter) const {
  const auto& own = record_.parameters[at(parameter)];
  return own.elements * own.element_bytes;
}

void SimulatedMemory::restart(const MemoryPlan& kept) {
  now_ = kept;
  total_ = now_.peak();
  is_held_.assign(record_.allocations.size(), false);
  is_due_.assign(record_.allocations.size(), false);
  pins_.assign(record_.allocations.size(), 0);
  add(&MemoryPlan::activations, 0);
}

void SimulatedMemory::restart_most() {
  most_ = now_;
  most_total_ = total_;
}

void SimulatedMemory::add(Part part, int64_t bytes) {
  now_.*part += bytes;
  total_ += bytes;
  if (total_ > most_total_) restart_most();
}

SimulatedMemory::Part SimulatedMemory::part_of(int allocation) const {
  return record_.allocations[at(allocation)].parameter >= 0 ? &MemoryPlan::gradients
                                                            : &MemoryPlan::activations;
}

int64_t SimulatedMemory::rounding_of(int allocation) const {
  const int64_t bytes = sizes_[at(allocation)];
  return (bytes + allocation_unit_ - 1) / allocation_unit_ * allocation_unit_ - bytes;
}

void SimulatedMemory::allocate(int allocation) {
  if (is_held_[at(allocation)]) return;
  is_held_[at(allocation)] = true;
  is_due_[at(allocation)] = false;
  now_.allocator += rounding_of(allocation);
  total_ += rounding_of(allocation);
  add(part_of(allocation), sizes_[at(allocation)]);
}

void SimulatedMemory::drop(int allocation) {
  if (allocation < 0 || !is_held_[at(allocation)]) return;
  is_held_[at(allocation)] = false;
  is_due_[at(allocation)] = false;
  add(&MemoryPlan::allocator, -rounding_of(allocation));
  add(part_of(allocation), -sizes_[at(allocation)]);
}

void SimulatedMemory::free(int allocation) {
  if (!is_held_[at(allocation)]) return;
  if (pins_[at(allocation)] > 0) {
    is_due_[at(allocation)] = true;
  } else {
    drop(allocation);
  }
}

void SimulatedMemory::pin(int allocation) {
  if (allocation >= 0) ++pins_[at(allocation)];
}

void SimulatedMemory::unpin(int allocation) {
  if (allocation < 0 || --pins_[at(allocation)] > 0) return;
  if (is_due_[at(allocation)]) drop(allocation);
}

/// recompute() keeps the block's input.
void SimulatedMemory::begin_call(int call) {
  if (is_recomputed(call)) pin(record_.calls[at(call)].input);
}

/// recompute() drops all that the block's forward has kept, but its result.
void SimulatedMemory::end_call(int call) {
  if (!is_recomputed(call)) return;
  const auto& own = record_.calls[at(call)];
  for (int event = own.begins_at; event < own.ends_at; ++event) {
    const auto& [kind, number] = record_.events[at(event)];
    if (kind == Kind::kAllocate && number != own.output) drop(number);
  }
}

/// Computes the block again, if it is to be. What the recorded step has freed by now is not kept.
void SimulatedMemory::begin_backward(int event, int call) {
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
    if (kind != Kind::kAllocate) continue;
    const int freed_at = record_.allocations[at(number)].freed_at;
    if (freed_at >= 0 && freed_at < event) free(number);
  }
}

void SimulatedMemory::end_backward(int call) {
  if (!is_recomputed(call)) return;
  unpin(record_.calls[at(call)].input);
  unpin(record_.calls[at(call)].output_gradient);
}

}  // namespace lockstep
