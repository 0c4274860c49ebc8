#include "lockstep/training/planning/internal/unit_memory.h"

#include <algorithm>
#include <utility>

#include "lockstep/training/planning/internal/kept_memory.h"

namespace lockstep {
namespace {

using Kind = RecordedEvent::Kind;

// Parameters of a unit begin at multiples of it.
constexpr int64_t kUnitAlignment = 64;

int64_t padded(int64_t bytes) {
  return (bytes + kUnitAlignment - 1) / kUnitAlignment * kUnitAlignment;
}

}  // namespace

UnitMemory::UnitMemory(const RecordedStep& record, const TrainingLayout& layout, SimulatedMemory& memory,
                       const std::vector<EventRange>& ranges)
    : record_(record), layout_(layout), memory_(memory), sharing_(replicas_of_process(layout)) {
  if (layout.stage < 3) return;
  unit_bytes_.assign(record_.blocks.size(), 0);
  for (size_t i = 0; i < record_.parameters.size(); ++i) {
    const int block = record_.parameters[i].block;
    if (block >= 0) unit_bytes_[at(block)] += padded(memory_.bytes_of_parameter(static_cast<int>(i)));
  }
  find_uses(ranges);
  find_reductions();
}

bool UnitMemory::is_in_unit(int parameter) const {
  if (layout_.stage < 3) return false;
  const int block = record_.parameters[at(parameter)].block;
  return block >= 0 && is_unit(block);
}

void UnitMemory::find_uses(const std::vector<EventRange>& ranges) {
  for (const auto& [begin, end] : ranges) {
    for (int event = begin; event < end; ++event) {
      const auto& [kind, number] = record_.events[at(event)];
      const bool is_backward = kind == Kind::kBackwardBegins;
      if (kind != Kind::kBlockBegins && !is_backward) continue;
      if (is_unit(record_.calls[at(number)].block)) uses_.push_back({number, is_backward});
    }
  }
}

/// A unit's gradients are complete with the last one of its parameters, and if the unit is used again in
/// backward, before that.
void UnitMemory::find_reductions() {
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

void UnitMemory::restart(bool has_earlier) {
  has_earlier_ = has_earlier;
  use_ = 0;
  whole_bytes_ = 0;
  under_way_bytes_ = 0;
  sum_.reset();
}

void UnitMemory::before(int event) {
  if (sum_ && event >= sum_->ends_at) end_sum();
}

void UnitMemory::after(int event) {
  if (reductions_.empty()) return;
  if (const int call = reductions_[at(event)]; call >= 0) reduce(event, call);
}

int UnitMemory::unit_of(size_t use) const {
  return use < uses_.size() ? record_.calls[at(uses_[use].call)].block : -1;
}

/// Sets the units that are whole.
void UnitMemory::set_whole(int first, int second) {
  if (layout_.replicas == 1) return;
  int64_t bytes = first < 0 ? 0 : unit_bytes_[at(first)];
  if (second >= 0 && second != first) bytes += unit_bytes_[at(second)];
  bytes /= sharing_;
  memory_.add(&MemoryPlan::gathered_units, bytes - std::exchange(whole_bytes_, bytes));
  // Of what processes gather, each sends a part and receives the whole apart from the unit.
  if (!has_processes(layout_)) return;
  const int64_t gathered = second >= 0 && second != first ? unit_bytes_[at(second)] : 0;
  const int64_t under_way = gathered / layout_.replicas + gathered / sharing_;
  memory_.add(&MemoryPlan::communication, under_way - std::exchange(under_way_bytes_, under_way));
}

void UnitMemory::begin_use(int call) {
  const int block = record_.calls[at(call)].block;
  if (!is_unit(block)) return;
  ++use_;
  set_whole(block, layout_.overlaps_units ? unit_of(use_) : -1);
}

void UnitMemory::end_forward(int call) {
  if (is_unit(record_.calls[at(call)].block)) end_use();
}

void UnitMemory::end_use() {
  set_whole(layout_.overlaps_units ? unit_of(use_) : -1, -1);
}

void UnitMemory::end_backward(int call) {
  if (sum_ && memory_.is_recomputed(call)) end_sum();  // recompute() waits for it
}

void UnitMemory::finish() {
  if (sum_) end_sum();
  set_whole(-1, -1);
}

void UnitMemory::end_sum() {
  const Sum sum = *std::exchange(sum_, std::nullopt);
  memory_.add(&MemoryPlan::communication, -sum.sent - sum.own);
}

/// Gathers the gradients of a unit in one piece of memory, and sums them over the replicas.
void UnitMemory::reduce(int event, int call) {
  const auto& own = record_.calls[at(call)];
  if (sum_) end_sum();
  const int64_t bytes = unit_bytes_[at(own.block)];
  const bool is_alone = layout_.replicas == 1;
  end_use();  // between processes, the memory of the whole parameters becomes that of their gradients
  memory_.add(is_alone ? &MemoryPlan::gradients : &MemoryPlan::communication, bytes);
  for (size_t i = 0; i < record_.parameters.size(); ++i) {
    if (record_.parameters[i].block == own.block) memory_.drop(record_.parameters[i].gradient);
  }
  if (is_alone) {
    if (has_earlier_) memory_.add(&MemoryPlan::gradients, -bytes);
    return;
  }
  const int64_t part = bytes / layout_.replicas;
  memory_.add(&MemoryPlan::communication, part);
  // In the middle of the next unit's backward, or at its end if all of it is one node of recompute().
  int ends_at = static_cast<int>(record_.events.size());
  if (use_ < uses_.size() && !memory_.is_recomputed(uses_[use_].call)) {
    const int middle = record_.calls[at(uses_[use_].call)].backward_middle_at;
    if (middle > event) ends_at = middle;
  }
  sum_ = Sum{bytes, part, ends_at};
  if (!has_processes(layout_)) return;
  sum_->sent += bytes / sharing_;  // what they exchange
  memory_.add(&MemoryPlan::communication, bytes / sharing_);
}

}  // namespace lockstep
