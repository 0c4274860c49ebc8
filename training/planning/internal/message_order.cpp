#include "lockstep/training/planning/internal/message_order.h"

#include <utility>

#include "lockstep/training/planning/internal/simulated_memory.h"

namespace lockstep {
namespace {

using Op = PipelineOp;

/// Returns the mean time of a rank's computations.
double time_of_computation(const std::vector<TimedPipelineAction>& actions) {
  double sum = 0, count = 0;
  for (const auto& [action, begin, end] : actions) {
    if (!is_computation(action.op)) continue;
    sum += end - begin;
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

}  // namespace

MessageOrder::MessageOrder(const PipelineSchedule& schedule, const PipelineTimeline& timeline) {
  std::map<std::pair<int, int>, std::vector<Message>> sent;  // by sender and receiver
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const auto& actions = schedule.actions[at(rank)];
    for (size_t i = 0; i < actions.size(); ++i) {
      const auto& [op, stage, micro_batch] = actions[i];
      if (op != Op::kSendActivation && op != Op::kSendGradient) continue;
      const bool goes_on = op == Op::kSendActivation;
      const int to_stage = goes_on ? stage + 1 : stage - 1;
      const int to = schedule.rank_of_stage[at(to_stage)];
      const Op receive = goes_on ? Op::kReceiveActivation : Op::kReceiveGradient;
      sent[{rank, to}].push_back({.receive = {receive, to_stage, micro_batch},
                                  .from = rank,
                                  .to = to,
                                  .send_action = i,
                                  .sent_at = timeline.ranks[at(rank)][i].end});
    }
  }
  std::map<std::pair<int, int>, size_t> next;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const auto& actions = schedule.actions[at(rank)];
    const auto& times = timeline.ranks[at(rank)];
    const double delay = time_of_computation(times);
    for (size_t i = 0; i < actions.size(); ++i) {
      const auto& [op, stage, micro_batch] = actions[i];
      if (op != Op::kReceiveActivation && op != Op::kReceiveGradient) continue;
      const int from = schedule.rank_of_stage[at(op == Op::kReceiveActivation ? stage - 1 : stage + 1)];
      auto& taken = taken_[key_of(actions[i])];
      while (!messages_.contains(key_of(actions[i]))) {
        taken.push_back(sent[{from, rank}][next[{from, rank}]++]);
        taken.back().taken_in = i;
        // The speed of ranks is not known: one that does not wait for the message may be late.
        const bool waits = times[i].begin <= taken.back().sent_at;
        taken.back().taken_at = times[i].end + (waits ? 0 : delay);
        messages_[key_of(taken.back().receive)] = taken.back();
      }
    }
  }
}

}  // namespace lockstep
