#include "lockstep/runtime/exchange/exchange_plan.h"

#include <algorithm>
#include <sstream>

namespace lockstep {
namespace {

std::ostream& operator<<(std::ostream& out, const BlockRanges& ranges) {
  const char* separator = "";
  for (const auto& range : ranges) {
    out << separator << range.first;
    if (range.count != 1) out << ".." << range.first + range.count - 1;
    separator = ",";
  }
  return out;
}

}  // namespace

int count_blocks(const BlockRanges& ranges) {
  int count = 0;
  for (const auto& range : ranges) count += range.count;
  return count;
}

void append_block(BlockRanges& ranges, int block) {
  if (!ranges.empty() && ranges.back().first + ranges.back().count == block) {
    ++ranges.back().count;
  } else {
    ranges.push_back({block, 1});
  }
}

BlockRanges cyclic_blocks(int first, int count, int size, int offset) {
  BlockRanges ranges;
  const int straight = std::min(count, size - first);
  if (straight > 0) ranges.push_back({offset + first, straight});
  if (count > straight) ranges.push_back({offset, count - straight});
  return ranges;
}

std::string plan_text(const ExchangePlan& plan) {
  std::ostringstream out;
  out << "rank " << plan.rank << " of " << plan.size << ", " << plan.num_blocks << " blocks and "
      << plan.num_scratch() << " for scratch\n";
  for (size_t i = 0; i < plan.rounds.size(); ++i) {
    const auto& round = plan.rounds[i];
    out << "round " << i << ":";
    for (const auto& send : round.sends) out << " send " << send.blocks << " to " << send.peer << ";";
    for (const auto& receive : round.receives)
      out << (receive.is_added ? " add " : " receive ") << receive.blocks << " from " << receive.peer << ";";
    for (const auto& step : round.steps)
      out << (step.is_added ? " add " : " copy ") << step.from << " to " << step.into << ";";
    out << "\n";
  }
  return out.str();
}

}  // namespace lockstep
