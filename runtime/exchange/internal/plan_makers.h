#pragma once

#include <bit>

#include "lockstep/runtime/exchange/exchange_plan.h"

// The functions that make_plan() calls, one for each collective and algorithm. They may leave empty rounds.
namespace lockstep::plan_makers {

struct Ranks {
  int rank = 0;
  int size = 1;
  int root = 0;
};

/// Makes a power of two of any number of ranks. Neighbours from rank 0 on form pairs, of which only the first
/// rank is active. The remaining ranks are active, too.
struct Pairing {
  explicit Pairing(int size)
      : num_active(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))),
        num_pairs(size - num_active) {}

  int num_active;
  int num_pairs;

  /// Returns the rank of an active one, by its number among them.
  int rank_of(int index) const { return index < num_pairs ? 2 * index : index + num_pairs; }
  /// Returns the number of an active rank among them.
  int index_of(int rank) const { return rank < 2 * num_pairs ? rank / 2 : rank - num_pairs; }
  bool is_active(int rank) const { return rank >= 2 * num_pairs || rank % 2 == 0; }
  /// Returns whether an active rank has a partner that is not active: the next rank.
  bool has_partner(int rank) const { return rank < 2 * num_pairs; }
};

ExchangePlan doubling_all_reduce(const Ranks& ranks);
ExchangePlan halving_all_reduce(const Ranks& ranks);
ExchangePlan halving_reduce_scatter(const Ranks& ranks);

ExchangePlan direct_all_reduce(const Ranks& ranks);
ExchangePlan direct_reduce_scatter(const Ranks& ranks);
ExchangePlan direct_all_gather(const Ranks& ranks);
ExchangePlan direct_broadcast(const Ranks& ranks);
ExchangePlan direct_gather(const Ranks& ranks);
ExchangePlan direct_all_to_all(const Ranks& ranks);

ExchangePlan ring_all_reduce(const Ranks& ranks);
ExchangePlan ring_reduce_scatter(const Ranks& ranks);
ExchangePlan ring_all_gather(const Ranks& ranks);

ExchangePlan tree_broadcast(const Ranks& ranks);
ExchangePlan tree_gather(const Ranks& ranks);
ExchangePlan scatter_gather_broadcast(const Ranks& ranks);

ExchangePlan dissemination_all_gather(const Ranks& ranks);
ExchangePlan dissemination_all_to_all(const Ranks& ranks);
ExchangePlan pairwise_all_to_all(const Ranks& ranks);

}  // namespace lockstep::plan_makers
