#include "lockstep/training/planning/recorded_step.h"

#include <algorithm>
#include <cmath>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

int64_t bytes_of(const RecordedAllocation& allocation, int64_t examples) {
  return std::llround(allocation.bytes.at(examples));
}

}  // namespace

double RecordedStep::flops(int64_t examples) const {
  double sum = 0;
  for (const auto& one : operators) sum += one.flops.at(examples);
  return sum;
}

int64_t RecordedStep::saved_bytes(int64_t examples) const {
  int64_t sum = 0;
  for (const auto& allocation : allocations) {
    if (allocation.is_saved) sum += bytes_of(allocation, examples);
  }
  return sum;
}

std::vector<int64_t> RecordedStep::saved_bytes_of_blocks(int64_t examples) const {
  std::vector<int64_t> sums(blocks.size(), 0);
  for (const auto& allocation : allocations) {
    if (!allocation.is_saved || allocation.call < 0) continue;
    const auto block = static_cast<size_t>(calls[static_cast<size_t>(allocation.call)].block);
    sums[block] += bytes_of(allocation, examples);
  }
  return sums;
}

std::vector<int64_t> RecordedStep::live_bytes(int64_t examples) const {
  std::vector<int64_t> live;
  live.reserve(events.size());
  int64_t now = 0;
  for (const auto& [kind, number] : events) {
    const bool is_allocated = kind == RecordedEvent::Kind::kAllocate;
    if (is_allocated || kind == RecordedEvent::Kind::kFree) {
      const int64_t bytes = bytes_of(allocations[static_cast<size_t>(number)], examples);
      now += is_allocated ? bytes : -bytes;
    }
    live.push_back(now);
  }
  return live;
}

std::vector<size_t> RecordedStep::blocks_named(const std::string& prefix) const {
  std::vector<size_t> numbers;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].starts_with(prefix)) numbers.push_back(i);
  }
  return numbers;
}

std::vector<size_t> RecordedStep::pipeline_blocks(const std::string& prefix) const {
  const auto has_prefix = [&](const RecordedCall& call) {
    return blocks[static_cast<size_t>(call.block)].starts_with(prefix);
  };
  const auto found = std::find_if(calls.begin(), calls.end(), has_prefix);
  if (found == calls.end()) {
    throw InvalidArgument("[RecordedStep] expected calls of blocks whose names begin with '" + prefix +
                          "', but there are none");
  }
  std::vector<size_t> begins;
  for (size_t i = 0; i < calls.size(); ++i) {
    const bool is_first = i == 0 || has_prefix(calls[i]) || has_prefix(calls[i - 1]);
    if (is_first) begins.push_back(i);
  }
  return begins;
}

}  // namespace lockstep
