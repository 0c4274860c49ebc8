#include "lockstep/strategies/pipeline/pipeline_check.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using Op = PipelineOp;
/// The first of the two stages that a channel connects, and whether gradients or activations pass it.
using Channel = std::pair<int, bool>;

bool is_send(Op op) {
  return op == Op::kSendActivation || op == Op::kSendGradient;
}
bool is_receive(Op op) {
  return op == Op::kReceiveActivation || op == Op::kReceiveGradient;
}

Channel channel_of(const PipelineAction& action) {
  switch (action.op) {
    case Op::kSendActivation:
      return {action.stage, false};
    case Op::kReceiveActivation:
      return {action.stage - 1, false};
    case Op::kSendGradient:
      return {action.stage - 1, true};
    default:
      return {action.stage, true};  // of a gradient that is received
  }
}

class ScheduleChecker {
 public:
  ScheduleChecker(const PipelineSchedule& schedule, int buffers) : schedule_(schedule), buffers_(buffers) {}

  PipelineCheck run() {
    check_sizes();
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      for (const auto& action : actions_of(rank)) find(rank, action);
    }
    has_backward_ = std::any_of(found_.begin(), found_.end(), [](const auto& action) {
      return std::get<0>(action) != Op::kForward && !is_send(std::get<0>(action)) &&
             !is_receive(std::get<0>(action));
    });
    check_completeness();
    PipelineCheck check;
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) check.most_alive.push_back(check_order(rank));
    check_that_it_ends();
    return check;
  }

 private:
  using Key = std::tuple<Op, int, int>;

  [[noreturn]] void fail(const std::string& text) const {
    throw InvalidArgument("[check_pipeline_schedule] the schedule '" + schedule_.name +
                          "' cannot run: " + text);
  }
  static std::string on(int rank) { return " on rank " + std::to_string(rank); }

  int rank_of(int stage) const { return schedule_.rank_of_stage[static_cast<size_t>(stage)]; }
  const std::vector<PipelineAction>& actions_of(int rank) const {
    return schedule_.actions[static_cast<size_t>(rank)];
  }
  bool has(Op op, int stage, int micro_batch) const { return found_.contains({op, stage, micro_batch}); }
  /// Whether a stage's result goes to another rank.
  bool is_sent(int stage) const {
    return stage >= 0 && stage + 1 < schedule_.num_stages() && rank_of(stage) != rank_of(stage + 1);
  }

  void check_sizes() const {
    if (buffers_ < 1)
      throw InvalidArgument("[check_pipeline_schedule] expected at least 1 buffer, but got " +
                            std::to_string(buffers_));
    if (schedule_.num_stages() == 0 || schedule_.num_micro_batches < 1)
      fail("expected stages and micro-batches, but got " + std::to_string(schedule_.num_stages()) + " and " +
           std::to_string(schedule_.num_micro_batches));
    for (int stage = 0; stage < schedule_.num_stages(); ++stage) {
      if (rank_of(stage) < 0 || rank_of(stage) >= schedule_.num_ranks())
        fail("stage " + std::to_string(stage) + " is" + on(rank_of(stage)) + ", but there are " +
             std::to_string(schedule_.num_ranks()) + " ranks");
    }
  }

  void find(int rank, const PipelineAction& action) {
    const auto& [op, stage, micro_batch] = action;
    if (stage < 0 || stage >= schedule_.num_stages() || micro_batch < 0 ||
        micro_batch >= schedule_.num_micro_batches)
      fail(describe(action) + on(rank) + " is not one of " + std::to_string(schedule_.num_stages()) +
           " stages and " + std::to_string(schedule_.num_micro_batches) + " micro-batches");
    if (rank_of(stage) != rank)
      fail(describe(action) + " stands" + on(rank) + ", but the stage is" + on(rank_of(stage)));
    if (!found_.insert({op, stage, micro_batch}).second) fail(describe(action) + " stands there twice");
    const bool is_needed = !(is_send(op) || is_receive(op)) || is_sent(channel_of(action).first);
    if (!is_needed) fail(describe(action) + ": no other rank has the stage at the other end");
  }

  void expect(Op op, int stage, int micro_batch) const {
    if (!has(op, stage, micro_batch)) fail(describe({op, stage, micro_batch}) + " is missing");
  }

  void check_completeness() const {
    for (int stage = 0; stage < schedule_.num_stages(); ++stage) {
      for (int micro_batch = 0; micro_batch < schedule_.num_micro_batches; ++micro_batch) {
        expect(Op::kForward, stage, micro_batch);
        check_backward(stage, micro_batch);
        if (!is_sent(stage)) continue;
        expect(Op::kSendActivation, stage, micro_batch);
        expect(Op::kReceiveActivation, stage + 1, micro_batch);
        for (const auto& [op, at] :
             {std::pair(Op::kSendGradient, stage + 1), std::pair(Op::kReceiveGradient, stage)}) {
          if (has_backward_) expect(op, at, micro_batch);
          if (!has_backward_ && has(op, at, micro_batch))
            fail(describe({op, at, micro_batch}) + ", but no stage goes backward");
        }
      }
    }
  }

  void check_backward(int stage, int micro_batch) const {
    if (!has_backward_) return;
    const bool in_halves =
        has(Op::kBackwardInputs, stage, micro_batch) || has(Op::kBackwardWeights, stage, micro_batch);
    if (!in_halves) return expect(Op::kBackward, stage, micro_batch);
    if (has(Op::kBackward, stage, micro_batch))
      fail(describe({Op::kBackward, stage, micro_batch}) + " stands there as a whole and in halves");
    expect(Op::kBackwardInputs, stage, micro_batch);
    expect(Op::kBackwardWeights, stage, micro_batch);
  }

  /// Returns the action of the same rank that must come before this one.
  std::vector<PipelineAction> needed_by(const PipelineAction& action) const {
    // clang 14 does not capture structured bindings.
    const int stage = action.stage;
    const int micro_batch = action.micro_batch;
    const Op inputs_half = has(Op::kBackward, stage, micro_batch) ? Op::kBackward : Op::kBackwardInputs;
    // The gradient that the stage after it gives, on the same rank or received from another.
    const auto gradient = [&]() -> std::optional<PipelineAction> {
      if (stage + 1 == schedule_.num_stages()) return std::nullopt;
      if (is_sent(stage)) return PipelineAction{Op::kReceiveGradient, stage, micro_batch};
      return PipelineAction{has(Op::kBackward, stage + 1, micro_batch) ? Op::kBackward : Op::kBackwardInputs,
                            stage + 1, micro_batch};
    };
    switch (action.op) {
      case Op::kForward:
        if (stage == 0) return {};
        return {{is_sent(stage - 1) ? Op::kReceiveActivation : Op::kForward,
                 is_sent(stage - 1) ? stage : stage - 1, micro_batch}};
      case Op::kBackward:
      case Op::kBackwardInputs: {
        std::vector<PipelineAction> needed{{Op::kForward, stage, micro_batch}};
        if (const auto given = gradient()) needed.push_back(*given);
        return needed;
      }
      case Op::kBackwardWeights:
        return {{Op::kBackwardInputs, stage, micro_batch}};
      case Op::kSendActivation:
        return {{Op::kForward, stage, micro_batch}};
      case Op::kSendGradient:
        return {{inputs_half, stage, micro_batch}};
      default:
        return {};
    }
  }

  /// Returns the most activations that the rank keeps at the same time.
  int check_order(int rank) const {
    std::set<Key> done;
    int alive = 0;
    int most_alive = 0;
    for (const auto& action : actions_of(rank)) {
      for (const auto& needed : needed_by(action)) {
        if (!done.contains({needed.op, needed.stage, needed.micro_batch}))
          fail(describe(action) + " stands before " + describe(needed) + on(rank));
      }
      done.insert({action.op, action.stage, action.micro_batch});
      if (!has_backward_) continue;
      if (action.op == Op::kForward) most_alive = std::max(most_alive, ++alive);
      if (action.op == Op::kBackward || action.op == Op::kBackwardWeights) --alive;
    }
    return most_alive;
  }

  /// Lets the ranks run. Whether they come to an end does not depend on the order in which they take turns,
  /// as each only ever waits for one channel to have a place or a message (Kahn, "The Semantics of a Simple
  /// Language for Parallel Programming", 1974).
  void check_that_it_ends() {
    std::vector<size_t> next(schedule_.actions.size());
    bool has_moved = true;
    while (has_moved) {
      has_moved = false;
      for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
        auto& at = next[static_cast<size_t>(rank)];
        while (at < actions_of(rank).size() && can_do(actions_of(rank)[at])) {
          ++at;
          has_moved = true;
        }
      }
    }
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      if (next[static_cast<size_t>(rank)] < actions_of(rank).size()) fail(circle_from(rank, next));
    }
  }

  bool can_do(const PipelineAction& action) {
    if (is_send(action.op)) {
      auto& channel = channels_[channel_of(action)];
      if (static_cast<int>(channel.size()) == buffers_) return false;
      channel.push_back(action.micro_batch);
    } else if (is_receive(action.op)) {
      auto& channel = channels_[channel_of(action)];
      if (channel.empty()) return false;
      if (channel.front() != action.micro_batch)
        fail(describe(action) + " comes next" + on(rank_of(action.stage)) + ", but rank " +
             std::to_string(peer_of(action)) + " has sent that of micro-batch " +
             std::to_string(channel.front()) + " before");
      channel.pop_front();
    }
    return true;
  }

  int peer_of(const PipelineAction& action) const {
    const int first = channel_of(action).first;
    return rank_of(first == action.stage ? first + 1 : first);
  }

  /// Every rank that waits does so for another one that waits, as all that is received is sent.
  std::string circle_from(int rank, const std::vector<size_t>& next) const {
    std::vector<int> path;
    while (std::find(path.begin(), path.end(), rank) == path.end()) {
      path.push_back(rank);
      rank = peer_of(actions_of(rank)[next[static_cast<size_t>(rank)]]);
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), rank));
    std::string text = "ranks wait for each other in a circle";
    for (const int waiting : path) {
      const auto& action = actions_of(waiting)[next[static_cast<size_t>(waiting)]];
      text += (waiting == path.front() ? ": rank " : ", rank ") + std::to_string(waiting) + " for rank " +
              std::to_string(peer_of(action)) + " (" + describe(action) +
              (is_send(action.op) ? ", as " + std::to_string(buffers_) + " wait there already" : "") + ")";
    }
    return text;
  }

  const PipelineSchedule& schedule_;
  const int buffers_;
  bool has_backward_ = false;
  std::set<Key> found_;
  std::map<Channel, std::deque<int>> channels_;
};

}  // namespace

PipelineCheck check_pipeline_schedule(const PipelineSchedule& schedule, const PipelineCheckOptions& options) {
  return ScheduleChecker(schedule, options.buffers).run();
}

}  // namespace lockstep
