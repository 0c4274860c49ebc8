// Plans in which ranks exchange with partners at distance 1, 2, 4, ...: the nearest partner comes first, so
// that every sum is made in the order of sum_order().
#include <algorithm>

#include "lockstep/runtime/exchange/internal/plan_makers.h"

namespace lockstep::plan_makers {
namespace {

/// Appends a round in which the second rank of each pair hands its values to the first.
void fold(ExchangePlan& plan, const Pairing& pairing, const BlockRanges& all) {
  PlanRound round;
  if (!pairing.is_active(plan.rank)) {
    round.sends.push_back({plan.rank - 1, all});
  } else if (pairing.has_partner(plan.rank)) {
    round.receives.push_back({plan.rank + 1, all, /*is_added=*/true});
  }
  plan.rounds.push_back(std::move(round));
}

/// Appends a round in which the first rank of each pair sends the second its results.
void unfold(ExchangePlan& plan, const Pairing& pairing, const BlockRanges& results_of_second) {
  PlanRound round;
  if (!pairing.is_active(plan.rank)) {
    round.receives.push_back({plan.rank - 1, results_of_second});
  } else if (pairing.has_partner(plan.rank)) {
    round.sends.push_back({plan.rank + 1, results_of_second});
  }
  plan.rounds.push_back(std::move(round));
}

}  // namespace

ExchangePlan doubling_all_reduce(const Ranks& ranks) {
  const Pairing pairing(ranks.size);
  const BlockRanges all{{0, 1}};
  ExchangePlan plan{.rank = ranks.rank, .size = ranks.size, .num_blocks = 1};
  fold(plan, pairing, all);
  if (pairing.is_active(ranks.rank)) {
    const int own = pairing.index_of(ranks.rank);
    for (int distance = 1; distance < pairing.num_active; distance *= 2) {
      const int partner = pairing.rank_of(own ^ distance);
      plan.rounds.push_back({{{partner, all}}, {{partner, all, /*is_added=*/true}}, {}});
    }
  }
  unfold(plan, pairing, all);
  return plan;
}

ExchangePlan halving_all_reduce(const Ranks& ranks) {
  const Pairing pairing(ranks.size);
  const int num_blocks = pairing.num_active;
  const BlockRanges all{{0, num_blocks}};
  ExchangePlan plan{.rank = ranks.rank, .size = ranks.size, .num_blocks = num_blocks};
  fold(plan, pairing, all);
  if (pairing.is_active(ranks.rank)) {
    const int own = pairing.index_of(ranks.rank);
    BlockRange kept{0, num_blocks};
    for (int distance = 1; distance < num_blocks; distance *= 2) {
      const int partner = pairing.rank_of(own ^ distance);
      const int half = kept.count / 2;
      const BlockRange lower{kept.first, half};
      const BlockRange upper{kept.first + half, half};
      const bool keeps_upper = (own & distance) != 0;
      kept = keeps_upper ? upper : lower;
      plan.rounds.push_back(
          {{{partner, {keeps_upper ? lower : upper}}}, {{partner, {kept}, /*is_added=*/true}}, {}});
    }
    for (int distance = num_blocks / 2; distance >= 1; distance /= 2) {
      const int partner = pairing.rank_of(own ^ distance);
      // The partner has the other half of what the two had together before.
      const bool is_upper = (own & distance) != 0;
      const BlockRange other{is_upper ? kept.first - kept.count : kept.first + kept.count, kept.count};
      plan.rounds.push_back({{{partner, {kept}}}, {{partner, {other}}}, {}});
      kept = {std::min(kept.first, other.first), 2 * kept.count};
    }
  }
  unfold(plan, pairing, all);
  return plan;
}

ExchangePlan halving_reduce_scatter(const Ranks& ranks) {
  const Pairing pairing(ranks.size);
  ExchangePlan plan{.rank = ranks.rank, .size = ranks.size, .num_blocks = ranks.size};
  fold(plan, pairing, {{0, ranks.size}});
  if (pairing.is_active(ranks.rank)) {
    const int own = pairing.index_of(ranks.rank);
    // Once all partners up to a distance have been met, a rank only needs the blocks of those active ranks
    // whose lower bits are its own, together with the blocks of their partners.
    const auto blocks_of = [&](int index, int mask) {
      BlockRanges blocks;
      for (int other = index & mask; other < pairing.num_active; other += mask + 1) {
        const int rank = pairing.rank_of(other);
        append_block(blocks, rank);
        if (pairing.has_partner(rank)) append_block(blocks, rank + 1);
      }
      return blocks;
    };
    for (int distance = 1; distance < pairing.num_active; distance *= 2) {
      const int mask = 2 * distance - 1;
      const int partner = own ^ distance;
      plan.rounds.push_back({{{pairing.rank_of(partner), blocks_of(partner, mask)}},
                             {{pairing.rank_of(partner), blocks_of(own, mask), /*is_added=*/true}},
                             {}});
    }
  }
  const int second = pairing.is_active(ranks.rank) ? ranks.rank + 1 : ranks.rank;
  unfold(plan, pairing, {{second, 1}});
  return plan;
}

}  // namespace lockstep::plan_makers
