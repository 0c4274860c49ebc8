#include "lockstep/training/planning/internal/pipeline_memory.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <tuple>

#include "lockstep/strategies/pipeline/pipeline_schedule.h"
#include "lockstep/strategies/pipeline/pipeline_timeline.h"
#include "lockstep/training/planning/internal/kept_memory.h"
#include "lockstep/training/planning/internal/planned_stages.h"
#include "lockstep/training/planning/internal/stage_memory.h"
#include "lockstep/training/planning/internal/step_memory.h"

namespace lockstep {
namespace {

using Op = PipelineOp;

/// The plan of a whole pipeline.
struct PlannedRanks {
  const RecordedStep& record;
  const TrainingLayout& layout;
  PipelineSchedule schedule;
  PipelineTimeline timeline;  ///< with backward that takes twice as long as forward
  std::vector<PlannedStage> stages;
  std::vector<StageMemory> memory;  ///< of the stages
};

/// Returns the times at which messages are received.
class MessageTimes {
 public:
  explicit MessageTimes(const PipelineTimeline& timeline) {
    for (const auto& rank : timeline.ranks) {
      for (const auto& [action, begin, end] : rank) times_[{action.op, action.stage, action.micro_batch}] = end;
    }
  }
  double of(Op op, int stage, int micro_batch) const { return times_.at({op, stage, micro_batch}); }

 private:
  std::map<std::tuple<Op, int, int>, double> times_;
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
  RankSimulation(const PlannedRanks& ranks, const MessageTimes& times, int rank);

  MemoryPlan run();

 private:
  using Part = int64_t MemoryPlan::*;
  struct Message {
    double received_at = 0;
    int64_t bytes = 0;
  };

  void add(Part part, int64_t bytes);
  void apply(const ActionMemory& action);
  void take_messages(double now);
  void send(int64_t bytes, double received_at);
  void act(const PipelineAction& action);
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
  const MessageTimes& times_;
  const int rank_;
  const RankParameters parameters_;
  int64_t largest_bucket_ = 0;  // that has memory only while it is summed
  std::vector<int> micro_batches_;  // of each stage, that have gone backward
  std::vector<Message> messages_;
  MemoryPlan now_, most_;
  int64_t total_ = 0, most_total_ = 0;
};

RankSimulation::RankSimulation(const PlannedRanks& ranks, const MessageTimes& times, int rank)
    : ranks_(ranks),
      times_(times),
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

/// A message has memory of its own until the other rank has it.
void RankSimulation::send(int64_t bytes, double received_at) {
  messages_.push_back({received_at, bytes});
  add(&MemoryPlan::communication, bytes);
}

void RankSimulation::take_messages(double now) {
  std::erase_if(messages_, [&](const Message& message) {
    const bool is_taken = message.received_at <= now;
    if (is_taken) add(&MemoryPlan::communication, -message.bytes);
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
      return send(own.output_bytes, times_.of(Op::kReceiveActivation, stage + 1, micro_batch));
    case Op::kReceiveActivation:
      return add(&MemoryPlan::activations, own.input_bytes);
    case Op::kSendGradient:
      send(own.input_bytes, times_.of(Op::kReceiveGradient, stage - 1, micro_batch));
      return add(&MemoryPlan::activations, -own.input_bytes);
    case Op::kReceiveGradient:
      return add(&MemoryPlan::activations, own.output_bytes);
  }
}

/// If another rank has sent it, the input is there no longer.
void RankSimulation::end_inputs(int stage) {
  const StageMemory& own = memory_of(stage);
  if (!is_here(stage - 1) && !(own.is_split && own.keeps_input))
    add(&MemoryPlan::activations, -own.input_bytes);
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
  end_inputs(stage);
}

void RankSimulation::backward_weights(int stage) {
  const StageMemory& own = memory_of(stage);
  apply(own.weights);
  if (own.keeps_output_gradient) add(&MemoryPlan::activations, -own.output_bytes);
  if (own.is_split && own.keeps_input && !is_here(stage - 1))
    add(&MemoryPlan::activations, -own.input_bytes);
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
  for (const auto& [action, begin, end] : ranks_.timeline.ranks[at(rank_)]) {
    take_messages(begin);
    act(action);
  }
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
      .timeline = {},
      .stages = {},
      .memory = {}};
  ranks.timeline = simulate_pipeline(ranks.schedule, uniform_pipeline_times(ranks.schedule, 1, 2));
  ranks.stages = planned_stages(record, pipeline, ranks.schedule.num_stages());
  ranks.memory = memory_of_stages(record, layout, ranks.stages);
  const MessageTimes times(ranks.timeline);
  std::vector<MemoryPlan> plans;
  for (int rank = 0; rank < pipeline.ranks; ++rank) plans.push_back(RankSimulation(ranks, times, rank).run());
  return plans;
}

}  // namespace lockstep
