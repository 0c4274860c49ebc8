#include "lockstep/training/layouts/internal/stage_ranges.h"

#include <algorithm>
#include <utility>

#include "lockstep/strategies/pipeline/internal/pipeline_cut.h"

namespace lockstep {
namespace {

using Op = PipelineOp;

constexpr const char* kVSchedule = "zb-v";
constexpr const char* kGpipe = "gpipe";

size_t rank_of_stage(const PlannedLayout& layout, int64_t stage) {
  const int64_t ranks = layout.pipeline;
  if (layout.schedule == kVSchedule) return static_cast<size_t>(std::min(stage, 2 * ranks - 1 - stage));
  return static_cast<size_t>(stage % ranks);
}

/// Adds a state, unless another one contains it, and drops those that it contains.
void add_state(const AliveStages& state, std::vector<AliveStages>& states) {
  const auto contains = [](const AliveStages& a, const AliveStages& b) {
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i] < b[i]) return false;
    return true;
  };
  for (const auto& other : states)
    if (contains(other, state)) return;
  std::erase_if(states, [&](const auto& other) { return contains(state, other); });
  states.push_back(state);
}

/// Whether stages compute the halves of backward apart: those that recompute, or gather units, do not.
bool splits_backward(const PlannedLayout& layout) {
  return !layout.recomputes && (layout.stage != 3 || layout.parts() == 1);
}

/// Follows the actions of one rank.
std::vector<AliveStages> states_of(const PipelineSchedule& schedule, size_t rank, bool is_split) {
  std::vector<int> own;
  for (size_t stage = 0; stage < schedule.rank_of_stage.size(); ++stage)
    if (schedule.rank_of_stage[stage] == static_cast<int>(rank)) own.push_back(static_cast<int>(stage));
  AliveStages now(2 * own.size(), 0);
  std::vector<AliveStages> states;
  for (const auto& [op, stage, micro_batch] : schedule.actions[rank]) {
    const auto number = static_cast<size_t>(std::find(own.begin(), own.end(), stage) - own.begin());
    auto& alive = now[number];
    auto& split = now[own.size() + number];
    if (op == Op::kForward) {
      ++alive;
    } else if (op == Op::kBackward || (op == Op::kBackwardInputs && !is_split)) {
      --alive;
    } else if (op == Op::kBackwardInputs) {
      ++split;
    } else if (op == Op::kBackwardWeights && is_split) {
      --alive;
      --split;
    }
    if (op == Op::kForward || op == Op::kBackwardInputs) add_state(now, states);
  }
  return states;
}

}  // namespace

double dense_elements(const PlannedPart& part, const PlannedLayout& layout) {
  return part.elements.on_rank(layout.tensor, false);
}

double elements_on_rank(const PlannedPart& part, const PlannedLayout& layout) {
  return dense_elements(part, layout) + part.expert_elements / static_cast<double>(layout.expert);
}

int64_t steady_micro_batches(const PlannedLayout& layout) {
  return 4 * layout.pipeline;
}

const std::vector<std::vector<StageRange>>& StagePlans::stages(const PlannedModel& model,
                                                               const PlannedLayout& layout) {
  const Cut key{layout.pipeline, layout.stages(), layout.tensor, layout.expert,
                layout.schedule == kVSchedule};
  auto& ranks = stages_[key];
  if (!ranks.empty()) return ranks;
  std::vector<double> costs;
  costs.reserve(model.parts.size());
  const bool has_costs = std::any_of(model.kinds.begin(), model.kinds.end(),
                                     [](const auto& kind) { return kind.stage_cost > 0; });
  for (const size_t number : model.parts) {
    const auto& kind = model.kinds[number];
    costs.push_back(has_costs ? kind.stage_cost : elements_on_rank(kind, layout));
  }
  const auto firsts = cut_into_stages(costs, static_cast<size_t>(layout.stages()));
  ranks.resize(static_cast<size_t>(layout.pipeline));
  for (size_t stage = 0; stage < firsts.size(); ++stage) {
    const size_t end = stage + 1 < firsts.size() ? firsts[stage + 1] : costs.size();
    ranks[rank_of_stage(layout, static_cast<int64_t>(stage))].push_back(
        {firsts[stage], end, static_cast<int>(stage)});
  }
  return ranks;
}

const std::vector<AliveStages>& StagePlans::alive(const PlannedLayout& layout, size_t rank) {
  const bool keeps_all = layout.schedule == kGpipe;
  const int64_t micro_batches =
      keeps_all ? layout.micro_batches : std::min(layout.micro_batches, steady_micro_batches(layout));
  const Schedule key{layout.schedule + (splits_backward(layout) ? ", split" : ""), layout.pipeline,
                     micro_batches, layout.stages_per_rank};
  auto& ranks = alive_[key];
  if (ranks.empty()) {
    ranks.resize(static_cast<size_t>(layout.pipeline));
    if (layout.schedule == kGpipe || layout.schedule == "1f1b") {
      // As pipeline_schedule.h promises.
      for (size_t r = 0; r < ranks.size(); ++r) {
        const int64_t left = layout.pipeline - static_cast<int64_t>(r);
        ranks[r] = {{keeps_all ? micro_batches : std::min(micro_batches, left), 0}};
      }
    } else {
      const auto& made = schedule(layout, micro_batches);
      for (size_t r = 0; r < ranks.size(); ++r) ranks[r] = states_of(made, r, splits_backward(layout));
    }
  }
  return ranks[rank];
}

const PipelineSchedule& StagePlans::schedule(const PlannedLayout& layout, int64_t micro_batches) {
  const Schedule key{layout.schedule, layout.pipeline, micro_batches, layout.stages_per_rank};
  const auto found = schedules_.find(key);
  if (found != schedules_.end()) return found->second;
  return schedules_
      .emplace(key, make_pipeline_schedule(layout.schedule, static_cast<int>(layout.pipeline),
                                           static_cast<int>(micro_batches),
                                           static_cast<int>(layout.stages_per_rank)))
      .first->second;
}

}  // namespace lockstep
