#include "lockstep/training/planning/internal/pipeline_memory.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lockstep/strategies/pipeline/pipeline_schedule.h"
#include "lockstep/strategies/pipeline/pipeline_timeline.h"
#include "lockstep/training/planning/internal/kept_memory.h"
#include "lockstep/training/planning/internal/message_order.h"
#include "lockstep/training/planning/internal/planned_stages.h"
#include "lockstep/training/planning/internal/simulated_memory.h"
#include "lockstep/training/planning/internal/stage_memory.h"

namespace lockstep {
namespace {

using Op = PipelineOp;

/// The operations that a core computes until a thread that waits has woken up: about a millisecond.
constexpr double kWakeUp = 5e6;

/// The plan of a whole pipeline.
struct PlannedRanks {
  const RecordedStep& record;
  const TrainingLayout& layout;
  PipelineSchedule schedule;
  std::vector<PlannedStage> stages;
  std::vector<StageMemory> memory;  ///< of the stages
};

/// Returns what a micro-batch takes in each stage, in operations of a core. Operators of a block that several
/// stages share, such as an embedding whose table is also that of the last layer, count in the last one.
PipelineTimes times_of_stages(const PlannedRanks& ranks) {
  constexpr double kOperationsOfByte = 4;  // that a core computes while it reads or writes one
  const auto& record = ranks.record;
  const size_t num_stages = ranks.stages.size();
  std::vector<size_t> stage_of(record.blocks.size(), 0);
  for (size_t stage = 0; stage < num_stages; ++stage) {
    for (size_t call = ranks.stages[stage].first_call; call < ranks.stages[stage].end_call; ++call)
      stage_of[at(record.calls[call].block)] = stage;
  }
  std::vector<bool> is_again(record.blocks.size(), false);
  for (const size_t block : ranks.layout.recomputed) is_again[block] = true;
  std::vector<double> forward(num_stages, 0), backward(num_stages, 0);
  for (const auto& one : record.operators) {
    const size_t stage = one.block < 0 ? num_stages - 1 : stage_of[at(one.block)];
    const int64_t examples = ranks.layout.examples;
    const double bytes = one.bytes_read.at(examples) + one.bytes_written.at(examples);
    const double time = std::max(0.0, one.flops.at(examples) + kOperationsOfByte * bytes);
    if (!one.is_backward) forward[stage] += time;
    if (one.is_backward || (one.block >= 0 && is_again[at(one.block)])) backward[stage] += time;
  }
  // Ranks send without waiting.
  PipelineTimes times{.stages = {}, .transfer = kWakeUp, .buffers = 2 * ranks.schedule.num_micro_batches};
  for (size_t stage = 0; stage < num_stages; ++stage) {
    const double inputs = ranks.memory[stage].is_split ? backward[stage] / 2
                          : stage == 0                 ? 0
                                                       : backward[stage];
    times.stages.push_back({forward[stage], inputs, backward[stage] - inputs});
  }
  return times;
}

/// The parameters of a record on one rank.
struct RankParameters {
  std::vector<bool> is_here;
  std::vector<int64_t> sharing;  ///< how many ranks have each of them
  std::vector<int> uses;         ///< how many of the rank's stages use each of them
};

RankParameters parameters_of(const PlannedRanks& ranks, int rank) {
  const size_t count = ranks.record.parameters.size();
  RankParameters found{.is_here = std::vector<bool>(count, false),
                       .sharing = std::vector<int64_t>(count, 0),
                       .uses = std::vector<int>(count, 0)};
  for (size_t i = 0; i < count; ++i) {
    std::vector<bool> has(at(ranks.schedule.num_ranks()), false);
    for (size_t stage = 0; stage < ranks.stages.size(); ++stage) {
      if (!ranks.stages[stage].has_parameter[i]) continue;
      has[at(ranks.schedule.rank_of_stage[stage])] = true;
      if (ranks.schedule.rank_of_stage[stage] == rank) ++found.uses[i];
    }
    found.is_here[i] = has[at(rank)];
    found.sharing[i] = std::count(has.begin(), has.end(), true);
  }
  return found;
}

/// Goes through the actions of one rank.
class RankSimulation {
 public:
  RankSimulation(const PlannedRanks& ranks, const PipelineTimeline& timeline, const MessageOrder& messages,
                 int rank);

  MemoryPlan run();

 private:
  using Part = int64_t MemoryPlan::*;
  enum class Sum : uint8_t {
    kNone,
    kGradient,  // that of the first micro-batch
    kOwn,       // memory of the sum's own
  };
  struct Sent {
    MessageOrder::Message message;
    int64_t bytes = 0;
  };

  void add(Part part, int64_t bytes);
  void apply(const ActionMemory& action);
  void send(int64_t bytes, const PipelineAction& receive);
  void forget_taken(const TimedPipelineAction& action);
  void hear_from(const MessageOrder::Message& received);
  void act(const PipelineAction& action);
  void receive(const PipelineAction& action);
  void forward(int stage) { apply(memory_of(stage).forward); }
  void backward(int stage);
  void backward_inputs(int stage);
  void backward_weights(int stage);
  void end_inputs(int stage);
  void end_micro_batch(int stage);
  void hand_on(const StageGradient& gradient);
  void sum_shared();
  const StageMemory& memory_of(int stage) const { return ranks_.memory[at(stage)]; }
  bool is_here(int stage) const {
    return stage >= 0 && stage < ranks_.schedule.num_stages() &&
           ranks_.schedule.rank_of_stage[at(stage)] == rank_;
  }

  const PlannedRanks& ranks_;
  const PipelineTimeline& timeline_;
  const MessageOrder& order_;
  const int rank_;
  const RankParameters parameters_;
  int64_t largest_bucket_ = 0;      // that has memory only while it is summed
  std::vector<Sum> sums_;           // of each parameter's gradients
  std::vector<int> uses_left_;      // of each parameter: stages that have not gone backward to the end
  std::vector<int> micro_batches_;  // of each stage, that have gone backward
  std::vector<Sent> sent_;          // that may not have been taken yet
  double now_at_ = 0;               // on the timeline, the end of the action
  MemoryPlan now_, most_;
  int64_t total_ = 0, most_total_ = 0;
};

RankSimulation::RankSimulation(const PlannedRanks& ranks, const PipelineTimeline& timeline,
                               const MessageOrder& messages, int rank)
    : ranks_(ranks),
      timeline_(timeline),
      order_(messages),
      rank_(rank),
      parameters_(parameters_of(ranks, rank)),
      sums_(ranks.record.parameters.size(), Sum::kNone),
      uses_left_(parameters_.uses),
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

/// A message has memory of its own until the other rank has taken it.
void RankSimulation::send(int64_t bytes, const PipelineAction& receive) {
  sent_.push_back({.message = order_.message_for(receive), .bytes = bytes});
  add(&MemoryPlan::communication, bytes);
}

/// Forgets the messages that are taken before the middle of an action, at which most memory is there.
void RankSimulation::forget_taken(const TimedPipelineAction& action) {
  const double middle = (action.begin + action.end) / 2;
  std::erase_if(sent_, [&](const Sent& sent) {
    if (sent.message.taken_at > middle) return false;
    add(&MemoryPlan::communication, -sent.bytes);
    return true;
  });
}

/// A rank that has sent a message goes on to its next computation, and takes what it takes before that.
void RankSimulation::hear_from(const MessageOrder::Message& received) {
  const auto& others = ranks_.schedule.actions[at(received.from)];
  size_t action = received.send_action + 1;
  while (action < others.size() && !is_computation(others[action].op)) ++action;
  for (auto& [message, bytes] : sent_) {
    if (message.to == received.from && message.taken_in < action)
      message.taken_at = std::min(message.taken_at, now_at_ + kWakeUp);
  }
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
    hear_from(taken);
    const auto& [op, stage, micro_batch] = taken.receive;
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
  int64_t added = 0, largest_new = 0;
  for (const auto& [parameter, bytes] : own.gradients) {
    Sum& sum = sums_[parameter];
    if (sum != Sum::kNone) added += bytes;
    if (sum == Sum::kGradient) largest_new = std::max(largest_new, bytes);
    sum = sum == Sum::kNone ? Sum::kGradient : Sum::kOwn;
  }
  add(&MemoryPlan::gradients, largest_new);
  add(&MemoryPlan::gradients, -largest_new - added);
  if (++micro_batches_[at(stage)] < ranks_.schedule.num_micro_batches) return;
  for (size_t i = own.gradients.size(); i-- > 0;) {
    const size_t parameter = own.gradients[i].parameter;
    if (--uses_left_[parameter] == 0 && parameters_.sharing[parameter] == 1) hand_on(own.gradients[i]);
  }
}

/// The parameter gets the sum: that of one micro-batch as a copy. If ranks sum it up, it goes to a bucket.
void RankSimulation::hand_on(const StageGradient& gradient) {
  const auto& [parameter, bytes] = gradient;
  if (sums_[parameter] == Sum::kGradient) {
    add(&MemoryPlan::gradients, bytes);
    add(&MemoryPlan::gradients, -bytes);
  }
  if (!sums_gradients(ranks_.layout)) return;
  add(&MemoryPlan::buckets, largest_bucket_);
  add(&MemoryPlan::buckets, -largest_bucket_);
  add(&MemoryPlan::gradients, -bytes);
}

/// Ranks that share a parameter send each other their sums, and add them up one by one.
void RankSimulation::sum_shared() {
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (parameters_.sharing[i] < 2 || sums_[i] == Sum::kNone) continue;
    const int64_t bytes = ranks_.record.parameters[i].elements * ranks_.record.parameters[i].element_bytes;
    const int64_t messages = bytes * (parameters_.sharing[i] - 1);
    const int64_t terms = bytes * std::min<int64_t>(parameters_.sharing[i], 3);
    add(&MemoryPlan::communication, messages + terms);
    add(&MemoryPlan::communication, -messages - terms);
    sums_[i] = Sum::kOwn;
  }
  for (size_t i = sums_.size(); i-- > 0;) {
    if (parameters_.sharing[i] < 2 || sums_[i] == Sum::kNone) continue;
    hand_on({i, ranks_.record.parameters[i].elements * ranks_.record.parameters[i].element_bytes});
  }
}

MemoryPlan RankSimulation::run() {
  for (const auto& action : timeline_.ranks[at(rank_)]) {
    forget_taken(action);
    now_at_ = action.end;
    act(action.action);
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
      .stages = {},
      .memory = {}};
  ranks.stages = planned_stages(record, pipeline, ranks.schedule.num_stages());
  ranks.memory = memory_of_stages(record, layout, ranks.stages);
  const auto timeline = simulate_pipeline(ranks.schedule, times_of_stages(ranks));
  const MessageOrder messages(ranks.schedule, timeline);
  std::vector<MemoryPlan> plans;
  for (int rank = 0; rank < pipeline.ranks; ++rank)
    plans.push_back(RankSimulation(ranks, timeline, messages, rank).run());
  return plans;
}

}  // namespace lockstep
