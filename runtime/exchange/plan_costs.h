#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/runtime/exchange/exchange_plan.h"

namespace lockstep {

/// The cost of a message between two ranks. All links are alike, and full-duplex. The terms are those of the
/// model LogGP: L, G and o (Alexandrov, Ionescu, Schauser and Scheiman, J. Parallel Distrib. Comput. 44,
/// 1997).
struct LinkCosts {
  double seconds_per_message = 0;   ///< from when a message is sent until its first byte arrives
  double seconds_per_byte = 0;      ///< for which a link, and the ranks at both ends, are occupied
  double add_seconds_per_byte = 0;  ///< for a received byte that is added, on top of the above
  /// For which the rank at each end is occupied, whatever the size. It limits how many messages of a round
  /// can overlap.
  double overhead_seconds = 0;
  double step_seconds_per_byte = 0;  ///< for a byte that a rank adds between its own blocks
};

/// The work of one rank in a plan.
struct PlanCosts {
  int num_rounds = 0;
  int num_messages = 0;  ///< sent and received
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
};

/// Counts what a plan's rank does. `block_bytes` has the size of each block, without those for scratch.
PlanCosts costs_of(const ExchangePlan& plan, const std::vector<int64_t>& block_bytes);

/// Returns the bytes of each block if `bytes` are divided as evenly as whole elements allow.
std::vector<int64_t> even_blocks(int64_t bytes, int num_blocks, int64_t element_bytes = 1);

/// Estimates how long a plan takes, from what its rank does alone: in each round, the time until a message
/// arrives, and the time for which its messages occupy the rank, those that it sends or those that it
/// receives, whichever take longer. Exact if all ranks do as much in each round.
double estimated_seconds(const ExchangePlan& plan, const std::vector<int64_t>& block_bytes,
                         const LinkCosts& link);

/// Simulates the plans of all ranks, which begin at the same time, and returns when the last rank is done. A
/// rank sends the messages of a round one after another, and receives them one after another. Throws
/// std::logic_error if a rank would wait for ever.
double simulated_seconds(const std::vector<ExchangePlan>& plans, const std::vector<int64_t>& block_bytes,
                         const LinkCosts& link);

}  // namespace lockstep
