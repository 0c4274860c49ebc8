#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/exchange/make_plan.h"
#include "lockstep/runtime/exchange/plan_costs.h"

namespace lockstep {

/// Costs between processes of one machine, through shared memory: what the program link_costs measured on two
/// cores of an AMD EPYC (docs/performance_notes.md). Other machines differ, but all ranks must use the same.
inline constexpr LinkCosts kSharedMemoryCosts{.seconds_per_message = 11e-6,
                                              .seconds_per_byte = 0.13e-9,
                                              .add_seconds_per_byte = 0.1e-9,
                                              .overhead_seconds = 0.5e-6,
                                              .step_seconds_per_byte = 0.12e-9};

/// Costs between machines: the software's, measured over TCP by the same program, and those of a network with
/// 25 us and 10 Gbit/s, which are assumed.
inline constexpr LinkCosts kNetworkCosts{.seconds_per_message = 25e-6 + 17e-6,
                                         .seconds_per_byte = 0.8e-9,
                                         .add_seconds_per_byte = 0.1e-9,
                                         .overhead_seconds = 6e-6,
                                         .step_seconds_per_byte = 0.12e-9};

/// How the ranks of a job exchange. It must be the same on all ranks, since they make their plans by it.
struct ExchangePolicy {
  std::string transport = "TCP";  ///< for messages to users
  LinkCosts costs = kNetworkCosts;
  /// The algorithm of all all-reduces. None: the fastest one for each size.
  std::optional<PlanAlgorithm> all_reduce_algorithm{};
};

/// An algorithm, and the largest collective that it is chosen for.
struct AlgorithmRange {
  PlanAlgorithm algorithm = PlanAlgorithm::kDirect;
  int64_t most_bytes = 0;

  bool operator==(const AlgorithmRange&) const = default;
};

/// Estimates how long a collective with a result of `bytes` takes, from the plan of rank 0, which is the root
/// and has most to do. Throws InvalidArgument like make_plan().
double algorithm_seconds(CollectiveKind kind, PlanAlgorithm algorithm, int num_ranks, int64_t bytes,
                         const LinkCosts& costs);

/// Whether no rank sends more messages in the algorithm than may be chosen: 2 ceil(log2 n) + 2, or n - 1 in
/// an all-to-all. More would need a link, with its memory, to each of many ranks.
bool has_few_messages(CollectiveKind kind, PlanAlgorithm algorithm, int num_ranks);

/// Chooses the algorithms with the least algorithm_seconds(), among those with a fixed order of sums and
/// has_few_messages(). Returns them with ascending sizes; the last one has no limit. The time of an algorithm
/// is a line over the bytes, so the choice is the lower envelope of these lines.
std::vector<AlgorithmRange> choose_algorithms(CollectiveKind kind, int num_ranks, const LinkCosts& costs);

/// Returns the algorithm for a result of `bytes`.
PlanAlgorithm algorithm_for(const std::vector<AlgorithmRange>& ranges, int64_t bytes);

/// Chooses the size of gradient buckets for all-reduces that overlap with backward: the smallest power of
/// two, from 1 to 16 MiB, that is summed at 80 % or more of the speed of large messages. With smaller
/// buckets, latency would cost more than that. With larger ones, the last bucket, which nothing overlaps,
/// would take longer. The size is four times Hockney's n_1/2, at which half of the speed is reached (Hockney,
/// Parallel Comput. 20, 1994).
int64_t choose_bucket_bytes(int num_ranks, const ExchangePolicy& policy);

/// Returns a line such as "over TCP, recursive_doubling up to 55 KiB, then halving; 40 us a message, 0.8 ns
/// a byte".
std::string describe(const ExchangePolicy& policy, int num_ranks);

}  // namespace lockstep
