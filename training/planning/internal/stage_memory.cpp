#include "lockstep/training/planning/internal/stage_memory.h"

#include <algorithm>
#include <cmath>

#include "lockstep/training/planning/internal/simulated_memory.h"
#include "lockstep/training/planning/internal/unit_memory.h"

namespace lockstep {
namespace {

using Kind = RecordedEvent::Kind;

/// Follows one micro-batch through a stage.
class StageSimulation {
 public:
  StageSimulation(const RecordedStep& record, const TrainingLayout& layout, const PlannedStage& stage)
      : record_(record),
        layout_(layout),
        stage_(stage),
        memory_(record, layout),
        units_(record, layout, memory_, {stage.forward, stage.backward}) {}

  StageMemory run();

 private:
  int64_t input_bytes() const;
  int64_t output_bytes() const;
  void find_gradients(StageMemory& found) const;
  bool has_halves() const;
  void run_forward();
  void run_backward();
  void end_backward(const StageMemory& found);
  void run_inputs(StageMemory& found);
  void run_weights(StageMemory& found);
  int64_t bytes_of(const BatchQuantity& quantity) const {
    return std::llround(quantity.at(layout_.examples));
  }

  const RecordedStep& record_;
  const TrainingLayout& layout_;
  const PlannedStage& stage_;
  SimulatedMemory memory_;
  UnitMemory units_;
};

int64_t StageSimulation::input_bytes() const {
  return stage_.first_call == 0 ? 0 : memory_.bytes_of_allocation(record_.calls[stage_.first_call].input);
}

int64_t StageSimulation::output_bytes() const {
  if (stage_.end_call == record_.calls.size()) return 0;
  return memory_.bytes_of_allocation(record_.calls[stage_.end_call].input);
}

void StageSimulation::find_gradients(StageMemory& found) const {
  for (size_t i = 0; i < record_.parameters.size(); ++i) {
    if (!stage_.has_parameter[i] || !record_.parameters[i].is_trained) continue;
    const auto parameter = static_cast<int>(i);
    int64_t bytes = memory_.bytes_of_parameter(parameter);
    if (units_.is_in_unit(parameter)) bytes /= layout_.replicas;
    found.gradients.push_back({i, bytes});
    found.gradient_bytes += bytes;
  }
}

/// Sharded units and recomputation do all of backward at once.
bool StageSimulation::has_halves() const {
  if (layout_.stage == 3) return false;
  for (size_t call = stage_.first_call; call < stage_.end_call; ++call) {
    if (!record_.calls[call].halves.are_apart || memory_.is_recomputed(static_cast<int>(call))) return false;
  }
  return true;
}

void StageSimulation::run_forward() {
  if (stage_.end_call < record_.calls.size()) memory_.pin(record_.calls[stage_.end_call].input);
  for (int event = stage_.forward.begin; event < stage_.forward.end; ++event) {
    const auto& [kind, number] = record_.events[at(event)];
    if (kind == Kind::kAllocate) memory_.allocate(number);
    if (kind == Kind::kFree) memory_.free(number);
    if (kind == Kind::kBlockBegins) {
      units_.begin_use(number);
      memory_.begin_call(number);
    }
    if (kind == Kind::kBlockEnds) {
      memory_.end_call(number);
      units_.end_forward(number);
    }
  }
  // Memory that the record frees in forward of later stages.
  for (int event = stage_.forward.begin; event < stage_.forward.end; ++event) {
    const auto& [kind, number] = record_.events[at(event)];
    if (kind == Kind::kAllocate && !record_.allocations[at(number)].is_saved) memory_.free(number);
  }
}

void StageSimulation::run_backward() {
  for (int event = stage_.backward.begin; event < stage_.backward.end; ++event) {
    units_.before(event);
    const auto& [kind, number] = record_.events[at(event)];
    if (kind == Kind::kAllocate) memory_.allocate(number);
    if (kind == Kind::kFree) memory_.free(number);
    if (kind == Kind::kBackwardBegins) {
      units_.begin_use(number);
      memory_.begin_backward(event, number);
    }
    if (kind == Kind::kBackwardEnds) {
      memory_.end_backward(number);
      units_.end_backward(number);
    }
    units_.after(event);
  }
  units_.finish();
}

/// Only the gradients of the stage's parameters and of its input stay.
void StageSimulation::end_backward(const StageMemory& found) {
  for (size_t i = 0; i < record_.allocations.size(); ++i) memory_.drop(static_cast<int>(i));
  memory_.add(&MemoryPlan::gradients, found.gradient_bytes - memory_.now().gradients);
  memory_.add(&MemoryPlan::activations, found.input_bytes - memory_.now().activations);
}

/// Nothing that forward saved is freed before the half has ended.
void StageSimulation::run_inputs(StageMemory& found) {
  const auto& last = record_.calls[stage_.end_call - 1];
  const bool has_loss = stage_.end_call == record_.calls.size();
  for (int event = stage_.backward.begin; has_loss && event < last.backward_begins_at; ++event) {
    const auto& [kind, number] = record_.events[at(event)];
    if (kind == Kind::kAllocate) memory_.allocate(number);
    if (kind == Kind::kFree && record_.allocations[at(number)].is_backward) memory_.free(number);
  }
  if (has_loss) memory_.drop(last.output_gradient);
  // It has been received, and is among those that the half keeps.
  if (!has_loss && last.halves.keeps_output_gradient)
    memory_.add(&MemoryPlan::activations, -found.output_bytes);
  int64_t kept = 0, gradients = 0;
  for (size_t call = stage_.end_call; call-- > stage_.first_call;) {
    const auto& halves = record_.calls[call].halves;
    const int64_t most = bytes_of(halves.most_in_first);
    memory_.add(&MemoryPlan::activations, most);
    memory_.add(&MemoryPlan::activations, bytes_of(halves.gradients) - most);
    gradients += bytes_of(halves.gradients);
    kept += bytes_of(halves.saved);
    if (halves.needs_input && call > stage_.first_call)
      kept += memory_.bytes_of_allocation(record_.calls[call].input);
  }
  found.keeps_input = record_.calls[stage_.first_call].halves.needs_input;
  for (size_t i = 0; i < record_.allocations.size(); ++i) memory_.drop(static_cast<int>(i));
  const int64_t end = kept + gradients + found.input_bytes;
  memory_.add(&MemoryPlan::activations, end - memory_.now().activations);
}

/// Goes through the calls from the first one on, as SplitBackward does.
void StageSimulation::run_weights(StageMemory& found) {
  for (size_t call = stage_.first_call; call < stage_.end_call; ++call) {
    const auto& halves = record_.calls[call].halves;
    const int64_t most = bytes_of(halves.most_in_second);
    memory_.add(&MemoryPlan::activations, most);
    int64_t freed = bytes_of(halves.saved) + bytes_of(halves.gradients);
    if (halves.needs_input && call > stage_.first_call)
      freed += memory_.bytes_of_allocation(record_.calls[call].input);
    memory_.add(&MemoryPlan::activations, -most - freed);
    int64_t gradients = 0;
    for (size_t i = 0; i < record_.parameters.size(); ++i) {
      const auto& own = record_.parameters[i];
      if (own.is_trained && own.block == record_.calls[call].block)
        gradients += memory_.bytes_of_parameter(static_cast<int>(i));
    }
    memory_.add(&MemoryPlan::gradients, gradients);
  }
  memory_.add(&MemoryPlan::gradients, found.gradient_bytes - memory_.now().gradients);
}

StageMemory StageSimulation::run() {
  StageMemory found{.input_bytes = input_bytes(), .output_bytes = output_bytes()};
  find_gradients(found);
  MemoryPlan begin;
  const auto taken = [&] {
    const ActionMemory action{.most = memory_.most() - begin, .end = memory_.now() - begin};
    begin = memory_.now();
    memory_.restart_most();
    return action;
  };
  const auto go_forward = [&] {
    units_.restart(/*has_earlier=*/false);
    memory_.restart({});
    begin = {};
    memory_.restart_most();
    run_forward();
    return taken();
  };
  found.forward = go_forward();
  run_backward();
  end_backward(found);
  found.backward = taken();
  if (stage_.first_call == 0) {  // has no gradients to compute for a stage before it
    found.weights = found.backward;
    found.keeps_output_gradient = true;
    return found;
  }
  found.is_split = has_halves();
  if (!found.is_split) {
    found.inputs = found.backward;
    return found;
  }
  go_forward();
  run_inputs(found);
  found.inputs = taken();
  memory_.add(&MemoryPlan::activations, -found.input_bytes);  // sent in the meantime
  memory_.restart_most();
  begin = memory_.now();
  run_weights(found);
  found.weights = taken();
  return found;
}

}  // namespace

std::vector<StageMemory> memory_of_stages(const RecordedStep& record, const TrainingLayout& layout,
                                          const std::vector<PlannedStage>& stages) {
  std::vector<StageMemory> memory;
  memory.reserve(stages.size());
  for (const auto& stage : stages) memory.push_back(StageSimulation(record, layout, stage).run());
  return memory;
}

MemoryPlan operator+(MemoryPlan a, const MemoryPlan& b) {
  for (const auto part : kMemoryPlanParts) a.*part += b.*part;
  return a;
}

MemoryPlan operator-(MemoryPlan a, const MemoryPlan& b) {
  for (const auto part : kMemoryPlanParts) a.*part -= b.*part;
  return a;
}

}  // namespace lockstep
