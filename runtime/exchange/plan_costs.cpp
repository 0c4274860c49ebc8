#include "lockstep/runtime/exchange/plan_costs.h"

#include <algorithm>
#include <deque>
#include <map>
#include <stdexcept>
#include <utility>

namespace lockstep {
namespace {

int64_t bytes_of(const ExchangePlan& plan, const BlockRanges& ranges,
                 const std::vector<int64_t>& block_bytes) {
  int64_t bytes = 0;
  for (const auto& range : ranges) {
    for (int block = range.first; block < range.first + range.count; ++block) {
      const int like =
          block < plan.num_blocks ? block : plan.scratch_like[static_cast<size_t>(block - plan.num_blocks)];
      bytes += block_bytes[static_cast<size_t>(like)];
    }
  }
  return bytes;
}

/// Seconds of the additions that a rank makes once it has received all of a round.
double step_seconds(const ExchangePlan& plan, const PlanRound& round, const std::vector<int64_t>& block_bytes,
                    const LinkCosts& link) {
  double seconds = 0;
  for (const auto& step : round.steps) {
    if (step.is_added)
      seconds +=
          static_cast<double>(bytes_of(plan, {{step.into, 1}}, block_bytes)) * link.step_seconds_per_byte;
  }
  return seconds;
}

double receive_seconds(const ExchangePlan& plan, const PlanReceive& receive,
                       const std::vector<int64_t>& block_bytes, const LinkCosts& link) {
  return link.overhead_seconds +
         static_cast<double>(bytes_of(plan, receive.blocks, block_bytes)) *
             (link.seconds_per_byte + (receive.is_added ? link.add_seconds_per_byte : 0));
}

double send_seconds(const ExchangePlan& plan, const PlanSend& send, const std::vector<int64_t>& block_bytes,
                    const LinkCosts& link) {
  return link.overhead_seconds +
         static_cast<double>(bytes_of(plan, send.blocks, block_bytes)) * link.seconds_per_byte;
}

}  // namespace

PlanCosts costs_of(const ExchangePlan& plan, const std::vector<int64_t>& block_bytes) {
  PlanCosts costs;
  for (const auto& round : plan.rounds) {
    costs.num_messages += static_cast<int>(round.sends.size() + round.receives.size());
    if (!round.sends.empty() || !round.receives.empty()) ++costs.num_rounds;
    for (const auto& send : round.sends) costs.bytes_sent += bytes_of(plan, send.blocks, block_bytes);
    for (const auto& receive : round.receives)
      costs.bytes_received += bytes_of(plan, receive.blocks, block_bytes);
  }
  return costs;
}

std::vector<int64_t> even_blocks(int64_t bytes, int num_blocks, int64_t element_bytes) {
  const int64_t elements = bytes / element_bytes;
  std::vector<int64_t> sizes;
  for (int64_t block = 0; block < num_blocks; ++block)
    sizes.push_back((elements * (block + 1) / num_blocks - elements * block / num_blocks) * element_bytes);
  return sizes;
}

double estimated_seconds(const ExchangePlan& plan, const std::vector<int64_t>& block_bytes,
                         const LinkCosts& link) {
  double seconds = 0;
  for (const auto& round : plan.rounds) {
    double sending = 0;
    for (const auto& send : round.sends) sending += send_seconds(plan, send, block_bytes, link);
    double receiving = 0;
    for (const auto& receive : round.receives) receiving += receive_seconds(plan, receive, block_bytes, link);
    if (!round.sends.empty() || !round.receives.empty()) seconds += link.seconds_per_message;
    seconds += std::max(sending, receiving) + step_seconds(plan, round, block_bytes, link);
  }
  return seconds;
}

double simulated_seconds(const std::vector<ExchangePlan>& plans, const std::vector<int64_t>& block_bytes,
                         const LinkCosts& link) {
  struct State {
    size_t round = 0;
    double at = 0;       // when the current round began
    double sent_at = 0;  // when its messages have left
    bool has_sent = false;
  };
  std::vector<State> states(plans.size());
  std::map<std::pair<int, int>, std::deque<double>> arrivals;  // of the first byte of messages on their way
  std::deque<int> ready;
  for (const auto& plan : plans) ready.push_back(plan.rank);
  while (!ready.empty()) {
    const int rank = ready.front();
    ready.pop_front();
    const auto& plan = plans[static_cast<size_t>(rank)];
    auto& state = states[static_cast<size_t>(rank)];
    while (state.round < plan.rounds.size()) {
      const auto& round = plan.rounds[state.round];
      if (!std::exchange(state.has_sent, true)) {
        state.sent_at = state.at;
        for (const auto& send : round.sends) {
          arrivals[{rank, send.peer}].push_back(state.sent_at + link.seconds_per_message);
          state.sent_at += send_seconds(plan, send, block_bytes, link);
          ready.push_back(send.peer);
        }
      }
      const bool has_all =
          std::all_of(round.receives.begin(), round.receives.end(), [&](const auto& receive) {
            return !arrivals[{receive.peer, rank}].empty();
          });
      if (!has_all) break;
      std::vector<std::pair<double, double>> received;  // when it arrives, and how long it takes
      for (const auto& receive : round.receives) {
        auto& from_peer = arrivals[{receive.peer, rank}];
        received.emplace_back(from_peer.front(), receive_seconds(plan, receive, block_bytes, link));
        from_peer.pop_front();
      }
      std::sort(received.begin(), received.end());
      double received_at = state.at;
      for (const auto& [arrival, seconds] : received) received_at = std::max(received_at, arrival) + seconds;
      state.at = std::max(state.sent_at, received_at) + step_seconds(plan, round, block_bytes, link);
      state.has_sent = false;
      ++state.round;
    }
  }
  double seconds = 0;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    if (states[rank].round < plans[rank].rounds.size())
      throw std::logic_error("rank " + std::to_string(rank) + " waits for ever");
    seconds = std::max(seconds, states[rank].at);
  }
  return seconds;
}

}  // namespace lockstep
