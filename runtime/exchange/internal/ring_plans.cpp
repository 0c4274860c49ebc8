// Plans in which every rank receives from the one before it and sends to the one after it.
#include "lockstep/runtime/exchange/internal/plan_makers.h"

namespace lockstep::plan_makers {
namespace {

/// Appends n - 1 rounds. In the first one a rank sends block rank + `shift`, and then always what it received
/// last.
void go_round(ExchangePlan& plan, int shift, bool is_added) {
  const int size = plan.size;
  const auto block = [&](int offset) { return ((plan.rank + offset) % size + size) % size; };
  for (int i = 0; i + 1 < size; ++i) {
    plan.rounds.push_back(
        {{{block(1), {{block(shift - i), 1}}}}, {{block(-1), {{block(shift - i - 1), 1}}, is_added}}, {}});
  }
}

}  // namespace

ExchangePlan ring_all_reduce(const Ranks& ranks) {
  ExchangePlan plan = ring_reduce_scatter(ranks);
  go_round(plan, 0, /*is_added=*/false);
  return plan;
}

ExchangePlan ring_reduce_scatter(const Ranks& ranks) {
  ExchangePlan plan{.rank = ranks.rank, .size = ranks.size, .num_blocks = ranks.size};
  go_round(plan, -1, /*is_added=*/true);
  return plan;
}

ExchangePlan ring_all_gather(const Ranks& ranks) {
  ExchangePlan plan{.rank = ranks.rank, .size = ranks.size, .num_blocks = ranks.size};
  go_round(plan, 0, /*is_added=*/false);
  return plan;
}

}  // namespace lockstep::plan_makers
