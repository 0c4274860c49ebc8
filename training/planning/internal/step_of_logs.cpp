#include "lockstep/training/planning/internal/step_of_logs.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using Kind = RecordedEvent::Kind;

/// The backward of a block ends where that of the block before begins, and is to be noted first.
void sort_ends(StepLog& log) {
  for (size_t i = 0; i + 1 < log.events.size(); ++i) {
    auto& event = log.events[i];
    auto& next = log.events[i + 1];
    if (event.kind != Kind::kBackwardBegins || next.kind != Kind::kBackwardEnds) continue;
    std::swap(event, next);
    log.calls[static_cast<size_t>(event.number)].backward_ends_at = static_cast<int>(i);
    log.calls[static_cast<size_t>(next.number)].backward_begins_at = static_cast<int>(i) + 1;
  }
}

[[noreturn]] void refuse_other_step(const BatchLine& line, const std::string& difference) {
  throw InvalidArgument(c10::str("[ModuleRecorder] expected a step that does the same for ", line.fewer(),
                                 " and for ", line.more(), " examples, but with more of them ", difference,
                                 ": take other numbers of examples, closer to those that you plan"));
}

std::string name_of_operator(const StepLog& log, size_t index) {
  return index < log.operators.size() ? log.operators[index].name : std::string("nothing");
}

void check_alike(const BatchLine& line, const StepLog& fewer, const StepLog& more) {
  for (size_t i = 0; i < std::max(fewer.operators.size(), more.operators.size()); ++i) {
    const std::string expected = name_of_operator(fewer, i), given = name_of_operator(more, i);
    if (expected != given) refuse_other_step(line, "it calls " + given + " in place of " + expected);
  }
  const auto compared = [](const StepLog& log) {
    auto events = log.events;
    // When the values that ranks exchange are freed, depends on their threads.
    if (log.is_of_ranks()) std::erase_if(events, [](const auto& event) { return event.kind == Kind::kFree; });
    return events;
  };
  const auto is_alike = [](const auto& a, const auto& b) { return a.kind == b.kind && a.number == b.number; };
  const auto of_fewer = compared(fewer), of_more = compared(more);
  if (!std::equal(of_fewer.begin(), of_fewer.end(), of_more.begin(), of_more.end(), is_alike)) {
    refuse_other_step(line, c10::str("it allocates memory in another way, ", more.allocations.size(),
                                     " times instead of ", fewer.allocations.size()));
  }
}

void take_allocations(RecordedStep& record, const BatchLine& line, const StepLog& fewer,
                      const StepLog& more) {
  const auto forward_end = std::find_if(more.events.begin(), more.events.end(),
                                        [](const auto& event) { return event.kind == Kind::kForwardEnds; });
  const auto end = static_cast<int>(forward_end - more.events.begin());
  for (size_t i = 0; i < more.allocations.size(); ++i) {
    const auto& own = more.allocations[i];
    record.allocations.push_back({.bytes = line.through(fewer.allocations[i].bytes, own.bytes),
                                  .call = own.call,
                                  .is_backward = own.is_backward,
                                  .is_saved = !own.is_backward && own.freed_at > end,
                                  .freed_at = own.freed_at});
  }
}

void take_operators(RecordedStep& record, const BatchLine& line, const StepLog& fewer, const StepLog& more) {
  for (size_t i = 0; i < more.operators.size(); ++i) {
    const auto& small = fewer.operators[i];
    const auto& own = more.operators[i];
    const int block = own.call < 0 ? -1 : more.calls[static_cast<size_t>(own.call)].block;
    record.operators.push_back({.name = own.name,
                                .block = block,
                                .is_backward = own.is_backward,
                                .shapes = own.shapes,
                                .dtypes = own.dtypes,
                                .flops = line.through(small.flops, own.flops),
                                .bytes_read = line.through(small.bytes_read, own.bytes_read),
                                .bytes_written = line.through(small.bytes_written, own.bytes_written)});
  }
}

/// Puts frees by other threads among the events.
void insert_frees(RecordedStep& record, std::vector<std::pair<int, int>> freed) {
  if (freed.empty()) return;
  std::stable_sort(freed.begin(), freed.end(),
                   [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<RecordedEvent> events;
  std::vector<int> moved;  // the new number of each event
  size_t next = 0;
  for (size_t event = 0; event <= record.events.size(); ++event) {
    for (; next < freed.size() && freed[next].second == static_cast<int>(event); ++next)
      events.push_back({Kind::kFree, freed[next].first});
    moved.push_back(static_cast<int>(events.size()));
    if (event == record.events.size()) break;
    events.push_back(record.events[event]);
  }
  const auto move = [&](int& event) {
    if (event >= 0) event = moved[static_cast<size_t>(event)];
  };
  for (auto& call : record.calls) {
    for (int* event : {&call.begins_at, &call.ends_at, &call.backward_begins_at, &call.backward_ends_at,
                       &call.backward_middle_at})
      move(*event);
  }
  record.events = std::move(events);
  for (size_t event = 0; event < record.events.size(); ++event) {
    const auto& [kind, number] = record.events[event];
    if (kind == Kind::kFree)
      record.allocations[static_cast<size_t>(number)].freed_at = static_cast<int>(event);
  }
}

}  // namespace

RecordedStep step_of_logs(const BatchLine& line, StepLog& fewer, StepLog& more) {
  sort_ends(fewer);
  sort_ends(more);
  check_alike(line, fewer, more);
  RecordedStep record;
  record.blocks = more.blocks;
  record.calls = more.calls;
  record.events = more.events;
  record.least_examples = line.fewer();
  record.most_examples = line.more();
  take_allocations(record, line, fewer, more);
  take_operators(record, line, fewer, more);
  insert_frees(record, more.freed_elsewhere);
  return record;
}

}  // namespace lockstep
