#include "lockstep/runtime/exchange/algorithm_choice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>

namespace lockstep {
namespace {

// Large enough that rounding to whole bytes does not count, and no product of it overflows.
constexpr int64_t kManyBytes = int64_t{1} << 40;
constexpr int64_t kLeastBucket = int64_t{1} << 20;
constexpr int64_t kMostBucket = int64_t{16} << 20;
constexpr double kShareOfSpeed = 0.8;

std::vector<int64_t> block_bytes_of(CollectiveKind kind, const ExchangePlan& plan, int64_t bytes) {
  if (kind != CollectiveKind::kAllToAll) return even_blocks(bytes, plan.num_blocks);
  // As many bytes are sent as received.
  auto blocks = even_blocks(bytes, plan.size);
  const auto received = blocks;
  blocks.insert(blocks.end(), received.begin(), received.end());
  return blocks;
}

/// The time of an algorithm over the bytes.
struct Candidate {
  PlanAlgorithm algorithm;
  double seconds;  // without bytes
  double seconds_per_byte;

  double at(double bytes) const { return seconds + seconds_per_byte * bytes; }
};

std::vector<Candidate> candidates_of(CollectiveKind kind, int num_ranks, const LinkCosts& costs) {
  std::vector<Candidate> candidates;
  for (const auto algorithm : algorithms_for(kind)) {
    if (!has_fixed_order(kind, algorithm) || !has_few_messages(kind, algorithm, num_ranks)) continue;
    const auto plan = make_plan(kind, algorithm, 0, num_ranks);
    const double none = estimated_seconds(plan, block_bytes_of(kind, plan, 0), costs);
    const double many = estimated_seconds(plan, block_bytes_of(kind, plan, kManyBytes), costs);
    candidates.push_back({algorithm, none, (many - none) / static_cast<double>(kManyBytes)});
  }
  return candidates;
}

std::string number_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

std::string size_text(int64_t bytes) {
  if (bytes < 10 << 10) return std::to_string(bytes) + " bytes";
  if (bytes < 10 << 20) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes >> 20) + " MiB";
}

std::string ranges_text(const std::vector<AlgorithmRange>& ranges) {
  std::string text;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const bool is_last = i + 1 == ranges.size();
    text += std::string(i == 0 ? "" : is_last ? ", then " : ", ") + to_string(ranges[i].algorithm);
    if (!is_last) text += " up to " + size_text(ranges[i].most_bytes);
  }
  return text;
}

}  // namespace

bool has_few_messages(CollectiveKind kind, PlanAlgorithm algorithm, int num_ranks) {
  const auto plan = make_plan(kind, algorithm, 0, num_ranks);
  size_t sent = 0;
  for (const auto& round : plan.rounds) sent += round.sends.size();
  const auto ranks = static_cast<unsigned>(num_ranks);
  const size_t few = 2 * static_cast<size_t>(std::bit_width(ranks - 1)) + 2;  // the width is ceil(log2 n)
  return sent <= (kind == CollectiveKind::kAllToAll ? std::max<size_t>(few, ranks) : few);
}

double algorithm_seconds(CollectiveKind kind, PlanAlgorithm algorithm, int num_ranks, int64_t bytes,
                         const LinkCosts& costs) {
  const auto plan = make_plan(kind, algorithm, 0, num_ranks);
  return estimated_seconds(plan, block_bytes_of(kind, plan, bytes), costs);
}

std::vector<AlgorithmRange> choose_algorithms(CollectiveKind kind, int num_ranks, const LinkCosts& costs) {
  const auto candidates = candidates_of(kind, num_ranks, costs);
  auto best = std::min_element(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.seconds < b.seconds || (a.seconds == b.seconds && a.seconds_per_byte < b.seconds_per_byte);
  });
  std::vector<AlgorithmRange> ranges;
  while (true) {
    auto next = candidates.end();
    double crossing = static_cast<double>(kManyBytes);
    for (auto other = candidates.begin(); other != candidates.end(); ++other) {
      if (other->seconds_per_byte >= best->seconds_per_byte) continue;
      const double bytes =
          (other->seconds - best->seconds) / (best->seconds_per_byte - other->seconds_per_byte);
      if (bytes >= crossing) continue;
      crossing = bytes;
      next = other;
    }
    if (next == candidates.end()) break;
    ranges.push_back({best->algorithm, static_cast<int64_t>(std::floor(crossing))});
    best = next;
  }
  ranges.push_back({best->algorithm, std::numeric_limits<int64_t>::max()});
  return ranges;
}

PlanAlgorithm algorithm_for(const std::vector<AlgorithmRange>& ranges, int64_t bytes) {
  return std::find_if(ranges.begin(), ranges.end(),
                      [bytes](const AlgorithmRange& range) { return bytes <= range.most_bytes; })
      ->algorithm;
}

int64_t choose_bucket_bytes(int num_ranks, const ExchangePolicy& policy) {
  constexpr auto kKind = CollectiveKind::kAllReduce;
  const auto ranges = choose_algorithms(kKind, num_ranks, policy.costs);
  const auto speed = [&](int64_t bytes) {
    const auto algorithm = policy.all_reduce_algorithm.value_or(algorithm_for(ranges, bytes));
    return static_cast<double>(bytes) / algorithm_seconds(kKind, algorithm, num_ranks, bytes, policy.costs);
  };
  const double enough = kShareOfSpeed * speed(kManyBytes);
  for (int64_t bytes = kLeastBucket; bytes <= kMostBucket; bytes *= 2)
    if (speed(bytes) >= enough) return bytes;
  return kMostBucket;
}

std::string describe(const ExchangePolicy& policy, int num_ranks) {
  const auto ranges =
      policy.all_reduce_algorithm
          ? std::vector<AlgorithmRange>{{*policy.all_reduce_algorithm, std::numeric_limits<int64_t>::max()}}
          : choose_algorithms(CollectiveKind::kAllReduce, num_ranks, policy.costs);
  return "over " + policy.transport + ", " + ranges_text(ranges) + "; " +
         number_text(policy.costs.seconds_per_message * 1e6) + " us and " +
         number_text(policy.costs.overhead_seconds * 1e6) + " us a message, " +
         number_text(policy.costs.seconds_per_byte * 1e9) + " ns a byte";
}

}  // namespace lockstep
