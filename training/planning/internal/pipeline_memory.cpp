#include "lockstep/training/planning/internal/pipeline_memory.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/strategies/pipeline/pipeline_schedule.h"
#include "lockstep/strategies/pipeline/pipeline_timeline.h"
#include "lockstep/training/planning/internal/kept_memory.h"
#include "lockstep/training/planning/internal/planned_stages.h"
#include "lockstep/training/planning/internal/simulated_memory.h"
#include "lockstep/training/planning/internal/stage_memory.h"

namespace lockstep {
namespace {

using Op = PipelineOp;

/// The plan of a whole pipeline.
struct PlannedRanks {
  const RecordedStep& record;
  const TrainingLayout& layout;
  PipelineSchedule schedule;
  std::vector<PlannedStage> stages;
  std::vector<StageMemory> memory;  ///< of the stages
};

/// Returns what one example takes in each stage, in arbitrary units. Operators of a block that several stages
/// share, such as an embedding whose table is also that of the last layer, count in the last one.
PipelineTimes times_of_stages(const RecordedStep& record, const std::vector<PlannedStage>& stages) {
  constexpr double kOperationsOfByte = 4;  // that a core computes while it reads or writes one
  std::vector<size_t> stage_of(record.blocks.size(), 0);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    for (size_t call = stages[stage].first_call; call < stages[stage].end_call; ++call)
      stage_of[at(record.calls[call].block)] = stage;
  }
  PipelineTimes times{.stages = std::vector<PipelineStageTimes>(stages.size())};
  for (const auto& one : record.operators) {
    auto& own = times.stages[one.block < 0 ? stages.size() - 1 : stage_of[at(one.block)]];
    const double bytes = one.bytes_read.per_example + one.bytes_written.per_example;
    const double time = std::max(0.0, one.flops.per_example + kOperationsOfByte * bytes);
    if (one.is_backward) {
      own.backward_inputs += time / 2;
      own.backward_weights += time / 2;
    } else {
      own.forward += time;
    }
  }
  return times;
}

/// Which messages a rank takes in each of its receives. Messages from a rank come in the order in which it
/// sends them, so that a receive may take others before its own.
class MessageOrder {
 public:
  struct Message {
    PipelineAction receive;  ///< that it is for
    int from = 0, to = 0;    ///< ranks
    size_t sent_at = 0;      ///< number of the sender's action
    size_t taken_at = 0;     ///< number of the receiver's action
    double sent_when = 0;
    bool is_awaited = false;  ///< whether the receiver probably waits for it
  };

  MessageOrder(const PipelineSchedule& schedule, const PipelineTimeline& timeline) {
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
                                    .sent_at = i,
                                    .sent_when = timeline.ranks[at(rank)][i].begin});
      }
    }
    std::map<std::pair<int, int>, size_t> next;
    for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
      const auto& actions = schedule.actions[at(rank)];
      for (size_t i = 0; i < actions.size(); ++i) {
        const auto& [op, stage, micro_batch] = actions[i];
        if (op != Op::kReceiveActivation && op != Op::kReceiveGradient) continue;
        const int from = schedule.rank_of_stage[at(op == Op::kReceiveActivation ? stage - 1 : stage + 1)];
        auto& taken = taken_[key_of(actions[i])];
        while (!messages_.contains(key_of(actions[i]))) {
          taken.push_back(sent[{from, rank}][next[{from, rank}]++]);
          taken.back().taken_at = i;
          taken.back().is_awaited = timeline.ranks[at(rank)][i].begin < taken.back().sent_when;
          messages_[key_of(taken.back().receive)] = taken.back();
        }
      }
    }
  }
  /// Returns the message that a receive is for.
  const Message& message_for(const PipelineAction& receive) const { return messages_.at(key_of(receive)); }
  /// Returns the messages that a receive takes.
  const std::vector<Message>& taken_in(const PipelineAction& receive) const {
    return taken_.at(key_of(receive));
  }

 private:
  using Key = std::tuple<Op, int, int>;
  static Key key_of(const PipelineAction& action) { return {action.op, action.stage, action.micro_batch}; }

  std::map<Key, Message> messages_;
  std::map<Key, std::vector<Message>> taken_;
};

/// The parameters that a rank has, and those of them that other ranks have, too.
struct RankParameters {
  std::vector<bool> is_here;
  std::vector<int64_t> shared_bytes;  ///< of each shared one
  int64_t sharing = 1;                ///< the most ranks that share one
};

RankParameters parameters_of(const PlannedRanks& ranks, int rank) {
  RankParameters found{.is_here = std::vector<bool>(ranks.record.parameters.size(), false)};
  for (size_t i = 0; i < found.is_here.size(); ++i) {
    std::vector<bool> has(at(ranks.schedule.num_ranks()), false);
    for (size_t stage = 0; stage < ranks.stages.size(); ++stage) {
      if (ranks.stages[stage].has_parameter[i]) has[at(ranks.schedule.rank_of_stage[stage])] = true;
    }
    found.is_here[i] = has[at(rank)];
    const auto sharing = static_cast<int64_t>(std::count(has.begin(), has.end(), true));
    const auto& own = ranks.record.parameters[i];
    if (!has[at(rank)] || sharing == 1 || !own.is_trained) continue;
    found.shared_bytes.push_back(own.elements * own.element_bytes);
    found.sharing = std::max(found.sharing, sharing);
  }
  return found;
}

/// Goes through the actions of one rank.
class RankSimulation {
 public:
  RankSimulation(const PlannedRanks& ranks, const MessageOrder& messages, int rank);

  MemoryPlan run();

 private:
  using Part = int64_t MemoryPlan::*;
  struct Sent {
    int to = 0;
    size_t taken_at = 0;
    int64_t bytes = 0;
  };

  void add(Part part, int64_t bytes);
  void apply(const ActionMemory& action);
  void send(int64_t bytes, const PipelineAction& receive);
  void forget_taken(int rank, size_t action);
  void act(const PipelineAction& action);
  void receive(const PipelineAction& action);
  void forward(int stage) { apply(memory_of(stage).forward); }
  void backward(int stage);
  void backward_inputs(int stage);
  void backward_weights(int stage);
  void end_inputs(int stage);
  void end_micro_batch(int stage);
  void hand_on(const StageMemory& stage);
  void sum_shared();
  const StageMemory& memory_of(int stage) const { return ranks_.memory[at(stage)]; }
  bool is_here(int stage) const {
    return stage >= 0 && stage < ranks_.schedule.num_stages() &&
           ranks_.schedule.rank_of_stage[at(stage)] == rank_;
  }

  const PlannedRanks& ranks_;
  const MessageOrder& order_;
  const int rank_;
  const RankParameters parameters_;
  int64_t largest_bucket_ = 0;      // that has memory only while it is summed
  std::vector<int> micro_batches_;  // of each stage, that have gone backward
  std::vector<Sent> sent_;          // that may not have been taken yet
  MemoryPlan now_, most_;
  int64_t total_ = 0, most_total_ = 0;
};

RankSimulation::RankSimulation(const PlannedRanks& ranks, const MessageOrder& messages, int rank)
    : ranks_(ranks),
      order_(messages),
      rank_(rank),
      parameters_(parameters_of(ranks, rank)),
      micro_batches_(ranks.stages.size(), 0) {
  now_ = kept_memory(ranks.record, ranks.layout, parameters_.is_here);
  // All ranks get the whole batch.
  now_.inputs = std::llround(static_cast<double>(ranks.layout.micro_batches) *
                             ranks.record.input_bytes.at(ranks.layout.examples));
  total_ = most_total_ = now_.peak();
  most_ = now_;
  if (ranks.layout.stage != 2 || ranks.layout.replicas == 1) return;
  for (const auto& bucket : planned_buckets(ranks.record, ranks.layout, parameters_.is_here))
    largest_bucket_ = std::max(largest_bucket_, bucket.bytes);
}

void RankSimulation::add(Part part, int64_t bytes) {
  now_.*part += bytes;
  total_ += bytes;
  if (total_ <= most_total_) return;
  most_ = now_;
  most_total_ = total_;
}

void RankSimulation::apply(const ActionMemory& action) {
  const int64_t most = total_ + action.most.peak();
  if (most > most_total_) {
    most_ = now_ + action.most;
    most_total_ = most;
  }
  now_ = now_ + action.end;
  total_ += action.end.peak();
}

/// A message has memory of its own until the other rank takes it. How fast that one is, is not known: it is
/// taken to be at most two messages behind.
void RankSimulation::send(int64_t bytes, const PipelineAction& receive) {
  const auto& message = order_.message_for(receive);
  if (message.is_awaited) {
    add(&MemoryPlan::communication, bytes);
    return add(&MemoryPlan::communication, -bytes);
  }
  const auto is_waiting = [&](const Sent& sent) { return sent.to == message.to; };
  if (std::count_if(sent_.begin(), sent_.end(), is_waiting) == 2) {
    const auto oldest = std::find_if(sent_.begin(), sent_.end(), is_waiting);
    add(&MemoryPlan::communication, -oldest->bytes);
    sent_.erase(oldest);
  }
  sent_.push_back({.to = message.to, .taken_at = message.taken_at, .bytes = bytes});
  add(&MemoryPlan::communication, bytes);
}

/// A rank that has come to an action has taken its messages before that.
void RankSimulation::forget_taken(int rank, size_t action) {
  std::erase_if(sent_, [&](const Sent& sent) {
    const bool is_taken = sent.to == rank && sent.taken_at < action;
    if (is_taken) add(&MemoryPlan::communication, -sent.bytes);
    return is_taken;
  });
}

void RankSimulation::act(const PipelineAction& action) {
  const auto& [op, stage, micro_batch] = action;
  const StageMemory& own = memory_of(stage);
  switch (op) {
    case Op::kForward:
      return forward(stage);
    case Op::kBackward:
      return backward(stage);
    case Op::kBackwardInputs:
      return backward_inputs(stage);
    case Op::kBackwardWeights:
      return backward_weights(stage);
    case Op::kSendActivation:
      return send(own.output_bytes, {Op::kReceiveActivation, stage + 1, micro_batch});
    case Op::kReceiveActivation:
    case Op::kReceiveGradient:
      return receive(action);
    case Op::kSendGradient:
      send(own.input_bytes, {Op::kReceiveGradient, stage - 1, micro_batch});
      return add(&MemoryPlan::activations, -own.input_bytes);
  }
}

void RankSimulation::receive(const PipelineAction& action) {
  for (const auto& taken : order_.taken_in(action)) {
    const auto& [op, stage, micro_batch] = taken.receive;
    // The other rank has gone on to its next computation, unless it is late: the first rank of zb-v, which
    // has little to compute in its first stage, is often ahead.
    const auto& others = ranks_.schedule.actions[at(taken.from)];
    size_t action = taken.sent_at + 1;
    const bool is_prompt = ranks_.layout.pipeline.schedule != "zb-v";
    while (is_prompt && action < others.size() && !is_computation(others[action].op)) ++action;
    forget_taken(taken.from, action);
    add(&MemoryPlan::activations,
        op == Op::kReceiveActivation ? memory_of(stage).input_bytes : memory_of(stage).output_bytes);
  }
}

/// If another rank has sent it, the input is there no longer.
void RankSimulation::end_inputs(int stage) {
  if (!is_here(stage - 1)) add(&MemoryPlan::activations, -memory_of(stage).input_bytes);
}

void RankSimulation::backward(int stage) {
  apply(memory_of(stage).backward);
  add(&MemoryPlan::activations, -memory_of(stage).output_bytes);  // the result's gradient
  end_inputs(stage);
  end_micro_batch(stage);
}

void RankSimulation::backward_inputs(int stage) {
  const StageMemory& own = memory_of(stage);
  apply(own.inputs);
  if (!own.keeps_output_gradient) add(&MemoryPlan::activations, -own.output_bytes);
  if (!own.is_split || !own.keeps_input) end_inputs(stage);
}

void RankSimulation::backward_weights(int stage) {
  const StageMemory& own = memory_of(stage);
  apply(own.weights);
  if (own.keeps_output_gradient) add(&MemoryPlan::activations, -own.output_bytes);
  if (own.is_split && own.keeps_input) end_inputs(stage);
  end_micro_batch(stage);
}

/// Adds the gradients of a micro-batch up, as StageGradients does: into new memory the first time.
void RankSimulation::end_micro_batch(int stage) {
  const StageMemory& own = memory_of(stage);
  const int earlier = micro_batches_[at(stage)]++;
  if (earlier == 1) {
    add(&MemoryPlan::gradients, own.largest_gradient_bytes);
    add(&MemoryPlan::gradients, -own.largest_gradient_bytes);
  }
  if (earlier > 0) add(&MemoryPlan::gradients, -own.gradient_bytes);
  if (earlier + 1 == ranks_.schedule.num_micro_batches) hand_on(own);
}

/// The parameters get the sums: those of one micro-batch as copies. If ranks sum them up, they go to buckets.
void RankSimulation::hand_on(const StageMemory& stage) {
  if (ranks_.schedule.num_micro_batches == 1) {
    add(&MemoryPlan::gradients, stage.largest_gradient_bytes);
    add(&MemoryPlan::gradients, -stage.largest_gradient_bytes);
  }
  if (!sums_gradients(ranks_.layout)) return;
  add(&MemoryPlan::buckets, largest_bucket_);
  add(&MemoryPlan::buckets, -largest_bucket_);
  add(&MemoryPlan::gradients, -stage.gradient_bytes);
}

/// Ranks that share a parameter send each other their sums, and add them up.
void RankSimulation::sum_shared() {
  for (const int64_t bytes : parameters_.shared_bytes) {
    const int64_t needed = bytes * (parameters_.sharing + 1);
    add(&MemoryPlan::communication, needed);
    add(&MemoryPlan::communication, -needed);
  }
}

MemoryPlan RankSimulation::run() {
  for (const auto& action : ranks_.schedule.actions[at(rank_)]) act(action);
  sum_shared();
  return most_;
}

}  // namespace

std::vector<MemoryPlan> memory_of_pipeline(const RecordedStep& record, const TrainingLayout& layout) {
  const auto& pipeline = layout.pipeline;
  PlannedRanks ranks{
      .record = record,
      .layout = layout,
      .schedule = make_pipeline_schedule(pipeline.schedule, pipeline.ranks,
                                         static_cast<int>(layout.micro_batches), pipeline.stages_per_rank),
      .stages = {},
      .memory = {}};
  ranks.stages = planned_stages(record, pipeline, ranks.schedule.num_stages());
  ranks.memory = memory_of_stages(record, layout, ranks.stages);
  const auto timeline = simulate_pipeline(ranks.schedule, times_of_stages(record, ranks.stages));
  const MessageOrder messages(ranks.schedule, timeline);
  std::vector<MemoryPlan> plans;
  for (int rank = 0; rank < pipeline.ranks; ++rank)
    plans.push_back(RankSimulation(ranks, messages, rank).run());
  return plans;
}

}  // namespace lockstep
