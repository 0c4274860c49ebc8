// Plans in which every rank exchanges with all others at once.
#include <algorithm>
#include <utility>

#include "lockstep/runtime/exchange/internal/plan_makers.h"
#include "lockstep/runtime/exchange/make_plan.h"

namespace lockstep::plan_makers {
namespace {

/// Calls `function` with all other ranks. The first is the next rank, so that not all send to the same one at
/// first.
template <typename Function>
void for_each_other(const Ranks& ranks, const Function& function) {
  for (int distance = 1; distance < ranks.size; ++distance) function((ranks.rank + distance) % ranks.size);
}

/// Adds what the other ranks sent, which is in scratch blocks in rank order, to the rank's own block.
std::vector<PlanStep> sum_steps(const Ranks& ranks) {
  const auto place_of = [&](int rank) {
    if (rank == ranks.rank) return ranks.rank;
    return ranks.size + (rank < ranks.rank ? rank : rank - 1);
  };
  std::vector<int> places;  // of the partial sum that begins at each rank
  places.reserve(static_cast<size_t>(ranks.size));
  for (int rank = 0; rank < ranks.size; ++rank) places.push_back(place_of(rank));
  std::vector<PlanStep> steps;
  for (const auto& step : sum_order(ranks.size)) {
    int& into = places[static_cast<size_t>(step.into)];
    int from = places[static_cast<size_t>(step.from)];
    // The sum must end in the rank's own block. Floating-point addition is commutative.
    if (from == ranks.rank) std::swap(into, from);
    steps.push_back({into, from, /*is_added=*/true});
  }
  return steps;
}

PlanRound reduce_scatter_round(const Ranks& ranks) {
  PlanRound round;
  for_each_other(ranks, [&](int peer) {
    round.sends.push_back({peer, {{peer, 1}}});
    round.receives.push_back({peer, {{ranks.size + (peer < ranks.rank ? peer : peer - 1), 1}}});
  });
  round.steps = sum_steps(ranks);
  return round;
}

PlanRound all_gather_round(const Ranks& ranks) {
  PlanRound round;
  for_each_other(ranks, [&](int peer) {
    round.sends.push_back({peer, {{ranks.rank, 1}}});
    round.receives.push_back({peer, {{peer, 1}}});
  });
  return round;
}

std::vector<int> scratch_like_own(const Ranks& ranks) {
  return std::vector<int>(static_cast<size_t>(ranks.size - 1), ranks.rank);
}

}  // namespace

ExchangePlan direct_all_reduce(const Ranks& ranks) {
  ExchangePlan plan = direct_reduce_scatter(ranks);
  plan.rounds.push_back(all_gather_round(ranks));
  return plan;
}

ExchangePlan direct_reduce_scatter(const Ranks& ranks) {
  return {ranks.rank, ranks.size, ranks.size, scratch_like_own(ranks), {reduce_scatter_round(ranks)}};
}

ExchangePlan direct_all_gather(const Ranks& ranks) {
  return {ranks.rank, ranks.size, ranks.size, {}, {all_gather_round(ranks)}};
}

ExchangePlan direct_broadcast(const Ranks& ranks) {
  PlanRound round;
  const BlockRanges all{{0, 1}};
  if (ranks.rank == ranks.root) {
    for_each_other(ranks, [&](int peer) { round.sends.push_back({peer, all}); });
  } else {
    round.receives.push_back({ranks.root, all});
  }
  return {ranks.rank, ranks.size, 1, {}, {round}};
}

ExchangePlan direct_gather(const Ranks& ranks) {
  PlanRound round;
  if (ranks.rank == ranks.root) {
    for_each_other(ranks, [&](int peer) { round.receives.push_back({peer, {{peer, 1}}}); });
  } else {
    round.sends.push_back({ranks.root, {{ranks.rank, 1}}});
  }
  return {ranks.rank, ranks.size, ranks.size, {}, {round}};
}

ExchangePlan direct_all_to_all(const Ranks& ranks) {
  PlanRound round;
  for_each_other(ranks, [&](int peer) {
    round.sends.push_back({peer, {{peer, 1}}});
    round.receives.push_back({peer, {{ranks.size + peer, 1}}});
  });
  round.steps.push_back({ranks.size + ranks.rank, ranks.rank});
  return {ranks.rank, ranks.size, 2 * ranks.size, {}, {round}};
}

}  // namespace lockstep::plan_makers
