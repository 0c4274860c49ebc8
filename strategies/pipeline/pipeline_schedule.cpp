#include "lockstep/strategies/pipeline/pipeline_schedule.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/pipeline/pipeline_stream.h"

namespace lockstep {
namespace {

using Op = PipelineOp;

void check_sizes(const std::string& schedule, int ranks, int micro_batches) {
  if (ranks < 1)
    throw InvalidArgument("[" + schedule + "] expected at least 1 rank, but got " + std::to_string(ranks));
  if (micro_batches < 1) {
    throw InvalidArgument("[" + schedule + "] expected at least 1 micro-batch, but got " +
                          std::to_string(micro_batches));
  }
}

/// The computations of one rank, which takes each stage's micro-batches in order.
class RankOrder {
 public:
  explicit RankOrder(int micro_batches) : micro_batches_(micro_batches) {}

  int done(Op op, int stage) const {
    const auto found = done_.find({op, stage});
    return found == done_.end() ? 0 : found->second;
  }
  bool has_left(Op op, int stage) const { return done(op, stage) < micro_batches_; }

  /// Adds the computation of the stage's next micro-batches, as far as there are any left.
  void add(Op op, int stage, int count = 1) {
    for (int i = 0; i < count && has_left(op, stage); ++i)
      actions_.push_back({op, stage, done_[{op, stage}]++});
  }
  void add_rest(Op op, int stage) { add(op, stage, micro_batches_); }

  std::vector<PipelineAction> take() { return std::move(actions_); }

 private:
  int micro_batches_;
  std::map<std::pair<Op, int>, int> done_;
  std::vector<PipelineAction> actions_;
};

std::vector<int> stage_for_each_rank(int ranks) {
  std::vector<int> stages(static_cast<size_t>(ranks));
  std::iota(stages.begin(), stages.end(), 0);
  return stages;
}

PipelineSchedule with_one_stage_per_rank(std::string name, int ranks, int micro_batches) {
  return {std::move(name), micro_batches, stage_for_each_rank(ranks), {}};
}

/// Lets `fill` order each rank's computations, and adds the transfers.
template <typename Fill>
PipelineSchedule filled(PipelineSchedule schedule, int ranks, const Fill& fill) {
  for (int rank = 0; rank < ranks; ++rank) {
    RankOrder order(schedule.num_micro_batches);
    fill(rank, order);
    schedule.actions.push_back(order.take());
  }
  return with_transfers(std::move(schedule));
}

}  // namespace

std::string describe(const PipelineAction& action) {
  constexpr std::array kNames{"forward",
                              "backward",
                              "backward for the inputs",
                              "backward for the weights",
                              "sending the activation",
                              "receiving the activation",
                              "sending the gradient",
                              "receiving the gradient"};
  return std::string(kNames.at(static_cast<size_t>(action.op))) + " of stage " +
         std::to_string(action.stage) + " for micro-batch " + std::to_string(action.micro_batch);
}

PipelineSchedule with_transfers(PipelineSchedule schedule) {
  const auto& ranks = schedule.rank_of_stage;
  const auto are_apart = [&](int stage, int other) {
    return stage >= 0 && other >= 0 && stage < schedule.num_stages() && other < schedule.num_stages() &&
           ranks[static_cast<size_t>(stage)] != ranks[static_cast<size_t>(other)];
  };
  for (auto& actions : schedule.actions) {
    std::vector<PipelineAction> with;
    for (const auto& action : actions) {
      const auto [op, stage, micro_batch] = action;
      const bool is_forward = op == Op::kForward;
      const bool gives_gradient = op == Op::kBackward || op == Op::kBackwardInputs;
      if (is_forward && are_apart(stage - 1, stage))
        with.push_back({Op::kReceiveActivation, stage, micro_batch});
      if (gives_gradient && are_apart(stage, stage + 1))
        with.push_back({Op::kReceiveGradient, stage, micro_batch});
      with.push_back(action);
      if (is_forward && are_apart(stage, stage + 1))
        with.push_back({Op::kSendActivation, stage, micro_batch});
      if (gives_gradient && are_apart(stage - 1, stage))
        with.push_back({Op::kSendGradient, stage, micro_batch});
    }
    actions = std::move(with);
  }
  return schedule;
}

PipelineSchedule forward_schedule(std::vector<int> rank_of_stage, int micro_batches) {
  const int ranks =
      rank_of_stage.empty() ? 0 : *std::max_element(rank_of_stage.begin(), rank_of_stage.end()) + 1;
  check_sizes("forward_schedule", ranks, micro_batches);
  return plan_pipeline_stream(rank_of_stage, {micro_batches}).schedule;
}

PipelineSchedule gpipe_schedule(int ranks, int micro_batches) {
  check_sizes("gpipe_schedule", ranks, micro_batches);
  auto schedule = with_one_stage_per_rank("gpipe", ranks, micro_batches);
  return filled(std::move(schedule), ranks, [&](int rank, RankOrder& order) {
    order.add_rest(Op::kForward, rank);
    order.add_rest(Op::kBackward, rank);
  });
}

PipelineSchedule one_forward_one_backward_schedule(int ranks, int micro_batches) {
  check_sizes("one_forward_one_backward_schedule", ranks, micro_batches);
  auto schedule = with_one_stage_per_rank("1f1b", ranks, micro_batches);
  return filled(std::move(schedule), ranks, [&](int rank, RankOrder& order) {
    order.add(Op::kForward, rank, ranks - rank);
    while (order.has_left(Op::kBackward, rank)) {
      order.add(Op::kBackward, rank);
      order.add(Op::kForward, rank);
    }
  });
}

PipelineSchedule interleaved_schedule(int ranks, int stages_per_rank, int micro_batches) {
  check_sizes("interleaved_schedule", ranks, micro_batches);
  if (stages_per_rank < 1) {
    throw InvalidArgument("[interleaved_schedule] expected at least 1 stage per rank, but got " +
                          std::to_string(stages_per_rank));
  }
  if (micro_batches % ranks != 0) {
    const int below = micro_batches / ranks * ranks;
    throw InvalidArgument("[interleaved_schedule] expected micro-batches in a multiple of the " +
                          std::to_string(ranks) + " ranks, but got " + std::to_string(micro_batches) + ": " +
                          (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + ranks) +
                          " would do");
  }
  PipelineSchedule schedule{"interleaved", micro_batches, {}, {}};
  for (int stage = 0; stage < ranks * stages_per_rank; ++stage)
    schedule.rank_of_stage.push_back(stage % ranks);

  // A rank takes `ranks` micro-batches through its first stage, the same ones through its next stage, and so
  // on; backward from its last stage to the first.
  const int round = ranks * stages_per_rank;
  const int total = micro_batches * stages_per_rank;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<PipelineAction> order;
    const auto add = [&](Op op, int step) {
      const int chunk = step % round / ranks;
      const int of_rank = op == Op::kForward ? chunk : stages_per_rank - 1 - chunk;
      order.push_back({op, of_rank * ranks + rank, step / round * ranks + step % ranks});
    };
    // The last stage goes backward at once; the others go forward until the first gradient can have come.
    const int ahead = std::min(total, 2 * (ranks - rank - 1) + (stages_per_rank - 1) * ranks + 1);
    for (int step = 0; step < ahead; ++step) add(Op::kForward, step);
    for (int step = 0; step < total; ++step) {
      add(Op::kBackward, step);
      if (ahead + step < total) add(Op::kForward, ahead + step);
    }
    schedule.actions.push_back(std::move(order));
  }
  return with_transfers(std::move(schedule));
}

PipelineSchedule zero_bubble_schedule(int ranks, int micro_batches) {
  check_sizes("zero_bubble_schedule", ranks, micro_batches);
  auto schedule = with_one_stage_per_rank("zb-h1", ranks, micro_batches);
  return filled(std::move(schedule), ranks, [&](int rank, RankOrder& order) {
    order.add(Op::kForward, rank, ranks - rank);
    while (order.has_left(Op::kBackwardInputs, rank)) {
      order.add(Op::kBackwardInputs, rank);
      // Later ranks go forward ahead of fewer micro-batches: they have room to put off as many halves.
      if (order.done(Op::kBackwardInputs, rank) - order.done(Op::kBackwardWeights, rank) > rank)
        order.add(Op::kBackwardWeights, rank);
      order.add(Op::kForward, rank);
    }
    order.add_rest(Op::kBackwardWeights, rank);
  });
}

PipelineSchedule zero_bubble_v_schedule(int ranks, int micro_batches) {
  check_sizes("zero_bubble_v_schedule", ranks, micro_batches);
  PipelineSchedule schedule{"zb-v", micro_batches, stage_for_each_rank(ranks), {}};
  for (int rank = ranks - 1; rank >= 0; --rank) schedule.rank_of_stage.push_back(rank);

  return filled(std::move(schedule), ranks, [&](int rank, RankOrder& order) {
    const int down = rank;  // the stage on the way to the last rank
    const int up = 2 * ranks - 1 - rank;
    const auto train = [&](int stage) {
      order.add(Op::kForward, stage);
      order.add(Op::kBackwardInputs, stage);
      order.add(Op::kBackwardWeights, stage);
    };
    // Forward until the first micro-batch comes back, then by turns until its gradient does.
    order.add(Op::kForward, down, 2 * (ranks - rank) - 1);
    for (int i = 0; i < rank; ++i) {
      order.add(Op::kForward, up);
      order.add(Op::kForward, down);
    }
    for (int i = 0; i < ranks - rank; ++i) train(up);
    while (order.has_left(Op::kForward, down) || order.has_left(Op::kForward, up)) {
      train(down);
      train(up);
    }
    // The weights' halves are put off as long as another rank waits for a gradient.
    for (int i = 0; i < rank; ++i) {
      order.add(Op::kBackwardInputs, down);
      order.add(Op::kBackwardInputs, up);
    }
    order.add_rest(Op::kBackwardInputs, up);
    while (order.has_left(Op::kBackwardInputs, down)) {
      order.add(Op::kBackwardInputs, down);
      order.add(Op::kBackwardWeights, down);
    }
    order.add_rest(Op::kBackwardWeights, up);
    order.add_rest(Op::kBackwardWeights, down);
  });
}

PipelineSchedule make_pipeline_schedule(const std::string& name, int ranks, int micro_batches,
                                        int stages_per_rank) {
  if (name == "gpipe") return gpipe_schedule(ranks, micro_batches);
  if (name == "1f1b") return one_forward_one_backward_schedule(ranks, micro_batches);
  if (name == "interleaved") return interleaved_schedule(ranks, stages_per_rank, micro_batches);
  if (name == "zb-h1") return zero_bubble_schedule(ranks, micro_batches);
  if (name == "zb-v") return zero_bubble_v_schedule(ranks, micro_batches);
  throw InvalidArgument(
      "[make_pipeline_schedule] expected gpipe, 1f1b, interleaved, zb-h1 or zb-v, but got '" + name + "'");
}

}  // namespace lockstep
