// Plans for any number of ranks in which a rank sends to those at distance 1, 2, 4, ... before it.
#include <algorithm>

#include "lockstep/runtime/exchange/internal/plan_makers.h"

namespace lockstep::plan_makers {

ExchangePlan dissemination_all_gather(const Ranks& ranks) {
  const int size = ranks.size;
  ExchangePlan plan{.rank = ranks.rank, .size = size, .num_blocks = size};
  // A rank has the blocks of the ranks from its own on.
  for (int have = 1; have < size; have *= 2) {
    const int to = (ranks.rank - have + size) % size;
    const int from = (ranks.rank + have) % size;
    const int count = std::min(have, size - have);
    plan.rounds.push_back(
        {{{to, cyclic_blocks(ranks.rank, count, size)}}, {{from, cyclic_blocks(from, count, size)}}, {}});
  }
  return plan;
}

ExchangePlan dissemination_all_to_all(const Ranks& ranks) {
  const int size = ranks.size;
  ExchangePlan plan{.rank = ranks.rank, .size = size, .num_blocks = 2 * size};
  // A value for the rank at distance d travels in one round for each bit of d, by that many ranks. On each
  // rank on its way, it is in the block that ends up with the value from the rank at distance d before.
  const auto block_at = [&](int distance) { return size + (ranks.rank - distance + size) % size; };
  PlanRound begin;
  for (int distance = 0; distance < size; ++distance)
    begin.steps.push_back({block_at(distance), (ranks.rank + distance) % size});
  plan.rounds.push_back(std::move(begin));
  for (int bit = 1; bit < size; bit *= 2) {
    BlockRanges moved;  // in descending order of distance, so that consecutive blocks form ranges
    for (int distance = size - 1; distance >= 1; --distance) {
      if ((distance & bit) != 0) append_block(moved, block_at(distance));
    }
    const int from = (ranks.rank - bit + size) % size;
    plan.rounds.push_back({{{(ranks.rank + bit) % size, moved}}, {{from, moved}}, {}});
  }
  return plan;
}

ExchangePlan pairwise_all_to_all(const Ranks& ranks) {
  const int size = ranks.size;
  ExchangePlan plan{.rank = ranks.rank, .size = size, .num_blocks = 2 * size};
  plan.rounds.push_back({{}, {}, {{size + ranks.rank, ranks.rank}}});
  for (int distance = 1; distance < size; ++distance) {
    const int to = (ranks.rank + distance) % size;
    const int from = (ranks.rank - distance + size) % size;
    plan.rounds.push_back({{{to, {{to, 1}}}}, {{from, {{size + from, 1}}}}, {}});
  }
  return plan;
}

}  // namespace lockstep::plan_makers
