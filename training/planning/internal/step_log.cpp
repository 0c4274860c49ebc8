#include "lockstep/training/planning/internal/step_log.h"

#include <ATen/SequenceNumber.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

/// Kernels that add to their results call it first.
bool fills(const StepLog::Operator& one) {
  return one.name == "aten::zero_" || one.name == "aten::fill_";
}

}  // namespace

using Kind = RecordedEvent::Kind;

StepLog* StepLog::of_thread() {
  return dynamic_cast<StepLog*>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE));
}

void StepLog::reportMemoryUsage(void* memory, int64_t bytes, size_t, size_t, c10::Device device) {
  if (!is_recording || !device.is_cpu() || bytes == 0) return;
  take_news();
  if (bytes > 0) {
    if (num_collectives_ > 0) return;
    if (!is_accumulating_) return allocate(memory, bytes);
    copies_[memory] = bytes;
    return;
  }
  const auto found = live_.find(memory);
  if (found == live_.end()) {  // older than the step, or another rank's
    if (ranks_) ranks_->free_elsewhere(memory);
    return;
  }
  if (ranks_) ranks_->remove(memory);
  allocations[static_cast<size_t>(found->second)].freed_at = now();
  note(Kind::kFree, found->second);
  live_.erase(found);
}

void StepLog::allocate(const void* memory, int64_t bytes) {
  if (ranks_) ranks_->add(memory, *this);
  const int number = static_cast<int>(allocations.size());
  allocations.push_back({.bytes = bytes, .call = call_, .is_backward = is_backward_});
  live_[memory] = number;
  note(Kind::kAllocate, number);
}

void StepLog::take_copy(const at::Tensor& copy, const at::Tensor& gradient) {
  const auto found = copies_.find(copy.storage().data());
  if (found == copies_.end()) return;
  const auto known = live_.find(gradient.storage().data());
  if (known == live_.end()) {
    allocate(found->first, found->second);
  } else {
    const int number = known->second;
    live_.erase(known);
    live_[found->first] = number;
    ranks_->add(found->first, *this);
  }
  copies_.erase(found);
}

/// Takes what other ranks' threads have done with this one's memory.
void StepLog::take_news() {
  if (!ranks_) return;
  for (const void* memory : ranks_->take_freed(*this)) {
    const auto found = live_.find(memory);
    if (found == live_.end()) continue;
    freed_elsewhere.emplace_back(found->second, now());
    live_.erase(found);
  }
}

int StepLog::allocation_of(const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.has_storage()) return -1;
  const auto found = live_.find(tensor.storage().data());
  return found == live_.end() ? -1 : found->second;
}

int StepLog::begin_call(const std::string& block, const at::Tensor& input) {
  const auto known = std::find(blocks.begin(), blocks.end(), block);
  const int call = static_cast<int>(calls.size());
  calls.push_back(
      {.block = static_cast<int>(known - blocks.begin()), .begins_at = now(), .input = allocation_of(input)});
  const auto node = static_cast<int64_t>(at::sequence_number::peek());
  nodes_.emplace_back(node, node);
  if (known == blocks.end()) blocks.push_back(block);
  note(Kind::kBlockBegins, call);
  call_ = call;
  return call;
}

void StepLog::end_call(int call, const at::Tensor& output) {
  auto& ended = calls[static_cast<size_t>(call)];
  ended.ends_at = now();
  ended.output = allocation_of(output);
  nodes_[static_cast<size_t>(call)].second = static_cast<int64_t>(at::sequence_number::peek());
  note(Kind::kBlockEnds, call);
  call_ = -1;
}

void StepLog::end_forward() {
  note(Kind::kForwardEnds, 0);
  is_backward_ = true;
}

void StepLog::begin_node(int64_t number) {
  if (!is_recording || !is_backward_ || call_ < 0 || number < 0) return;
  const auto& [begin, end] = nodes_[static_cast<size_t>(call_)];
  auto& middle = calls[static_cast<size_t>(call_)].backward_middle_at;
  if (middle < 0 && number <= begin + (end - begin) / 2) middle = now();
}

void StepLog::begin_backward_of(int call, const at::Tensor& gradient) {
  auto& begun = calls[static_cast<size_t>(call)];
  if (begun.backward_begins_at >= 0) return;
  begun.backward_begins_at = now();
  begun.output_gradient = allocation_of(gradient);
  note(Kind::kBackwardBegins, call);
  call_ = call;
}

void StepLog::end_backward_of(int call) {
  auto& ended = calls[static_cast<size_t>(call)];
  if (ended.backward_ends_at >= 0) return;
  ended.backward_ends_at = now();
  note(Kind::kBackwardEnds, call);
  // The result of the block before is the input of this one: its backward has begun then.
  if (call_ == call) call_ = -1;
}

void StepLog::take_gradient(int parameter, const at::Tensor& gradient) {
  gradients[static_cast<size_t>(parameter)] = allocation_of(gradient);
  note(Kind::kGradient, parameter);
}

StepLog::Inner StepLog::begin_operator(bool is_whole, bool may_need_scratch) {
  if (is_whole) ++num_whole_;
  return {operators.size(), is_whole, may_need_scratch, events.size(), allocations.size()};
}

/// Puts one allocation in the place of all that the operator has allocated and freed: their number may depend
/// on the examples. Together with what the operator leaves, it has the most bytes that there were at a time.
void StepLog::join_scratch(const Inner& inner) {
  int64_t held = 0, most = 0, left = 0;
  std::vector<RecordedEvent> others;
  for (size_t i = inner.first_event; i < events.size(); ++i) {
    const auto& [kind, number] = events[i];
    const bool is_own = kind != Kind::kGradient && static_cast<size_t>(number) >= inner.first_allocation;
    if (!is_own || (kind != Kind::kAllocate && kind != Kind::kFree)) {
      others.push_back(events[i]);
      continue;
    }
    const int64_t bytes = allocations[static_cast<size_t>(number)].bytes;
    held += kind == Kind::kAllocate ? bytes : -bytes;
    most = std::max(most, held);
  }
  const std::vector<Allocation> all(allocations.begin() + static_cast<int64_t>(inner.first_allocation),
                                    allocations.end());
  events.resize(inner.first_event);
  allocations.resize(inner.first_allocation);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].freed_at >= 0) continue;
    const auto number = static_cast<int>(allocations.size());
    for (auto& [memory, known] : live_) {
      if (known == static_cast<int>(inner.first_allocation + i)) known = number;
    }
    left += all[i].bytes;
    allocations.push_back(all[i]);
    note(Kind::kAllocate, number);
  }
  // Products need memory for some sizes only, and must look the same for all of them.
  if (most > left || inner.may_need_scratch) {
    const auto number = static_cast<int>(allocations.size());
    allocations.push_back({.bytes = most - left, .call = call_, .is_backward = is_backward_});
    note(Kind::kAllocate, number);
    allocations.back().freed_at = now();
    note(Kind::kFree, number);
  }
  for (const auto& event : others) {
    if (event.kind == Kind::kFree) allocations[static_cast<size_t>(event.number)].freed_at = now();
    events.push_back(event);
  }
}

void StepLog::end_operator(const Inner& inner, Operator* seen) {
  if (inner.is_whole && --num_whole_ == 0 && is_recording) join_scratch(inner);
  if (seen == nullptr) return;
  const auto first = operators.begin() + static_cast<int64_t>(inner.num_counted);
  if (first != operators.end() && !(seen->has_kernel && std::all_of(first, operators.end(), fills))) return;
  operators.erase(first, operators.end());
  seen->call = call_;
  seen->is_backward = is_backward_;
  operators.push_back(std::move(*seen));
}

}  // namespace lockstep
