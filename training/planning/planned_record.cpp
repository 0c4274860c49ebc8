#include "lockstep/training/planning/planned_record.h"

#include <algorithm>
#include <set>
#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using Kind = RecordedEvent::Kind;

size_t slot(int number) {
  return static_cast<size_t>(number);
}

class RecordedParts {
 public:
  explicit RecordedParts(const RecordedStep& record) : record_(record), parts_(record.blocks.size()) {
    const int events = static_cast<int>(record.events.size());
    forward_ends_ = events;
    for (int event = 0; event < events; ++event)
      if (record.events[slot(event)].kind == Kind::kForwardEnds) forward_ends_ = event;
  }

  std::vector<PlannedPart> make(const std::vector<size_t>& recomputed) {
    for (size_t block = 0; block < parts_.size(); ++block) parts_[block].name = record_.blocks[block];
    for (const size_t block : recomputed) parts_[block].is_recomputed = true;
    add_parameters();
    add_operators();
    add_saved();
    for (size_t call = 0; call < record_.calls.size(); ++call) add_peaks(call);
    // Products have about as large gradients as inputs.
    for (auto& part : parts_) part.split_extra = part.saved;
    return std::move(parts_);
  }

 private:
  PlannedPart& part_of(int block) { return block < 0 ? parts_.back() : parts_[slot(block)]; }

  void add_parameters() {
    for (const auto& parameter : record_.parameters) {
      PlannedPart& part = parameter.block < 0 ? parts_.front() : parts_[slot(parameter.block)];
      const auto elements = static_cast<double>(parameter.elements);
      part.elements.whole += elements;
      part.largest_tensor.whole = std::max(part.largest_tensor.whole, elements);
    }
  }

  void add_operators() {
    for (const auto& one : record_.operators) {
      PlannedPart& part = part_of(one.block);
      PlannedWork& work = one.is_backward ? part.backward : part.forward;
      ++work.operators;
      work.flops.whole += one.flops.per_example;
      if (one.flops.fixed + one.flops.per_example > 0) continue;
      work.bytes.whole += one.bytes_read.per_example + one.bytes_written.per_example;
      work.fixed_bytes.whole += std::max(0.0, one.bytes_read.fixed + one.bytes_written.fixed);
    }
  }

  /// A call keeps its input, which another one has made, unless that one needs it for longer.
  void add_saved() {
    for (const auto& call : record_.calls) {
      if (call.input < 0) continue;
      const auto& input = record_.allocations[slot(call.input)];
      PlannedPart& part = parts_[slot(call.block)];
      part.input.whole = std::max(part.input.whole, input.bytes.per_example);
      const int backward_of_maker = input.call < 0 ? -1 : record_.calls[slot(input.call)].backward_begins_at;
      const bool is_the_makers =
          backward_of_maker >= 0 && (input.freed_at < 0 || input.freed_at > backward_of_maker);
      if (!input.is_saved || is_the_makers || !inputs_.insert(call.input).second) continue;
      keep(input, part);
    }
    for (size_t i = 0; i < record_.allocations.size(); ++i) {
      const auto& allocation = record_.allocations[i];
      if (!allocation.is_saved || inputs_.contains(static_cast<int>(i))) continue;
      keep(allocation, part_of(allocation.call < 0 ? -1 : record_.calls[slot(allocation.call)].block));
    }
  }

  static void keep(const RecordedAllocation& allocation, PlannedPart& part) {
    part.saved.whole += allocation.bytes.per_example;
    part.fixed_saved.whole += allocation.bytes.fixed;
  }

  /// Returns what is live beyond that at the event `from`, at most, before the event `to`; without the
  /// gradients of parameters.
  BatchQuantity most_live(int from, int to) const {
    BatchQuantity live, most;
    for (int event = from; event < to; ++event) {
      const auto& [kind, number] = record_.events[slot(event)];
      const bool is_allocated = kind == Kind::kAllocate;
      if (!is_allocated && kind != Kind::kFree) continue;
      const auto& allocation = record_.allocations[slot(number)];
      if (allocation.parameter >= 0) continue;
      live.per_example += (is_allocated ? 1 : -1) * allocation.bytes.per_example;
      live.fixed += (is_allocated ? 1 : -1) * allocation.bytes.fixed;
      if (live.at(record_.most_examples) > most.at(record_.most_examples)) most = live;
    }
    return most;
  }

  double kept_input(const RecordedCall& call) const {
    return inputs_.contains(call.input) ? bytes_of(call.input) : 0;
  }

  double bytes_of(int allocation) const {
    return allocation < 0 ? 0 : record_.allocations[slot(allocation)].bytes.per_example;
  }

  void add_peaks(size_t number) {
    const auto& call = record_.calls[number];
    PlannedPart& part = parts_[slot(call.block)];
    // The loss belongs to the last part.
    const bool is_last = number + 1 == record_.calls.size();
    const BatchQuantity forward =
        most_live(number == 0 ? 0 : call.begins_at, is_last ? forward_ends_ : call.ends_at);
    part.forward_extra.whole =
        std::max(part.forward_extra.whole, forward.per_example + kept_input(call) - part.saved.whole);
    const int begin = is_last ? forward_ends_ : call.backward_begins_at;
    if (begin < 0) return;
    const BatchQuantity backward = most_live(begin, end_of_backward(number));
    part.fixed_extra = std::max({part.fixed_extra, forward.fixed - part.fixed_saved.whole, backward.fixed});
    part.backward_extra.whole = std::max(
        part.backward_extra.whole, backward.per_example + (is_last ? 0 : bytes_of(call.output_gradient)));
    part.has_late_gradients =
        part.has_late_gradients || (is_last && call.backward_begins_at > forward_ends_ + 1);
  }

  int end_of_backward(size_t number) const {
    const auto& call = record_.calls[number];
    if (call.backward_ends_at >= 0) return call.backward_ends_at;
    // Of a part whose input needs no gradient: until another one begins.
    int end = static_cast<int>(record_.events.size());
    for (const auto& other : record_.calls)
      if (other.backward_begins_at > call.backward_begins_at) end = std::min(end, other.backward_begins_at);
    return end;
  }

  const RecordedStep& record_;
  std::vector<PlannedPart> parts_;
  int forward_ends_ = 0;
  std::set<int> inputs_;  // allocations that the call keeps whose input they are
};

}  // namespace

PlannedModel planned_model(const RecordedStep& record, const std::vector<size_t>& recomputed) {
  if (record.blocks.empty())
    throw InvalidArgument(
        "[planned_model] expected a record with blocks, but got none: call ModuleRecorder::call()");
  for (const auto& parameter : record.parameters) {
    if (parameter.is_trained) continue;
    throw InvalidArgument("[planned_model] expected parameters that are all trained, but " + parameter.name +
                          " is not");
  }
  for (const size_t block : recomputed) {
    if (block < record.blocks.size()) continue;
    throw InvalidArgument("[planned_model] expected blocks to recompute below " +
                          std::to_string(record.blocks.size()) + ", but got " + std::to_string(block));
  }
  PlannedModel model{.kinds = RecordedParts(record).make(recomputed),
                     .input_bytes = record.input_bytes.per_example};
  for (size_t block = 0; block < record.blocks.size(); ++block) model.parts.push_back(block);
  return model;
}

}  // namespace lockstep
