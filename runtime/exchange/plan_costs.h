#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/runtime/exchange/exchange_plan.h"

namespace lockstep {

/// The cost of a message between two ranks. All links are alike, and full-duplex.
struct LinkCosts {
  double seconds_per_message = 0;   ///< from when a message is sent until its first byte arrives
  double seconds_per_byte = 0;      ///< for which a link, and the ranks at both ends, are occupied
  double add_seconds_per_byte = 0;  ///< for a received byte that is added, on top of the above
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

/// Estimates how long a plan takes, from what its rank does alone: in each round, the costs of a message and
/// of the bytes that it sends or receives, whichever are more. Exact if all ranks do as much in each round.
double estimated_seconds(const ExchangePlan& plan, const std::vector<int64_t>& block_bytes,
                         const LinkCosts& link);

/// Simulates the plans of all ranks, which begin at the same time, and returns when the last rank is done. A
/// rank sends the messages of a round one after another, and receives them one after another. Throws
/// std::logic_error if a rank would wait for ever.
double simulated_seconds(const std::vector<ExchangePlan>& plans, const std::vector<int64_t>& block_bytes,
                         const LinkCosts& link);

}  // namespace lockstep
