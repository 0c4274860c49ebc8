#include "lockstep/training/layouts/internal/layout_time.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/strategies/pipeline/pipeline_timeline.h"
#include "lockstep/training/layouts/internal/step_seconds.h"

namespace lockstep {
namespace {

bool is_less(const LayoutTime& a, const LayoutTime& b) {
  return a.seconds() < b.seconds();
}

void add(LayoutTime& sum, const LayoutTime& other, double times) {
  sum.operators += times * other.operators;
  sum.recomputation += times * other.recomputation;
  sum.cut_layers += times * other.cut_layers;
  sum.sequences += times * other.sequences;
  sum.experts += times * other.experts;
  sum.units += times * other.units;
}

/// Returns the least seconds that a rank cannot compute because its first micro-batch comes through the ranks
/// before it, and the gradients of its last one go back through them. In the zero-bubble schedules, weights
/// are left to do meanwhile.
double least_waiting(const std::vector<std::vector<StageSeconds>>& ranks, size_t rank, double transfer,
                     bool is_split) {
  double seconds = 0;
  for (size_t before = 0; before < rank; ++before) {
    const auto& stage = ranks[before].front();
    seconds += stage.forward.seconds() + transfer;
    if (!is_split) seconds += stage.backward.seconds() + transfer;
  }
  return seconds;
}

/// Returns when each rank's stages have done their last backward.
std::vector<std::vector<double>> simulated_ends(const PlannedLayout& layout,
                                                const std::vector<std::vector<StageRange>>& stages,
                                                const std::vector<std::vector<StageSeconds>>& seconds,
                                                double transfer, double busiest, StagePlans& plans) {
  // More micro-batches than it takes to get going only repeat the busiest rank's.
  const int64_t micro_batches = std::min(layout.micro_batches, steady_micro_batches(layout));
  PipelineTimes times{.stages = std::vector<PipelineStageTimes>(static_cast<size_t>(layout.stages())),
                      .transfer = transfer};
  for (size_t rank = 0; rank < stages.size(); ++rank) {
    for (size_t i = 0; i < stages[rank].size(); ++i) {
      const auto& own = seconds[rank][i];
      const double backward = own.backward.seconds();
      auto& stage = times.stages[static_cast<size_t>(stages[rank][i].stage)];
      stage.forward = own.forward.seconds();
      stage.backward_inputs = own.is_halved ? backward / 2 : backward;
      stage.backward_weights = own.is_halved ? backward / 2 : 0;
    }
  }
  const auto timeline = simulate_pipeline(plans.schedule(layout, micro_batches), times);
  const double repeated = static_cast<double>(layout.micro_batches - micro_batches) * busiest;
  std::vector<std::vector<double>> ends(stages.size());
  for (size_t rank = 0; rank < stages.size(); ++rank) {
    for (const auto& range : stages[rank]) {
      double& end = ends[rank].emplace_back(0);
      for (const auto& timed : timeline.ranks[rank])
        if (timed.action.stage == range.stage && is_computation(timed.action.op)) end = timed.end + repeated;
    }
  }
  return ends;
}

/// Of a pipeline: the rank that is done last.
LayoutTime predict_pipeline(const StepSeconds& step, const PlannedLayout& layout,
                            const std::vector<std::vector<StageRange>>& stages,
                            const std::vector<std::vector<StageSeconds>>& seconds,
                            std::vector<LayoutTime> ranks, StagePlans& plans) {
  double busiest = 0;
  for (const auto& rank : ranks) busiest = std::max(busiest, rank.seconds());
  const auto ends = simulated_ends(layout, stages, seconds, step.transfer_seconds(),
                                   busiest / static_cast<double>(layout.micro_batches), plans);
  for (size_t rank = 0; rank < stages.size(); ++rank) {
    const double end = *std::max_element(ends[rank].begin(), ends[rank].end());
    ranks[rank].bubble = std::max(0.0, end - ranks[rank].seconds());
    step.end_step_of_stages(stages[rank], ends[rank], ranks[rank]);
  }
  return *std::max_element(ranks.begin(), ranks.end(), is_less);
}

/// Returns a lower bound of it without a simulation.
LayoutTime least_of_pipeline(const StepSeconds& step, const PlannedLayout& layout,
                             const std::vector<std::vector<StageRange>>& stages,
                             const std::vector<std::vector<StageSeconds>>& seconds,
                             std::vector<LayoutTime> ranks) {
  const bool is_split = layout.schedule.starts_with("zb");
  const double transfer = step.transfer_seconds();
  double all = 0;  // until the first rank, to which the gradients come last, has computed
  for (size_t rank = 0; rank < stages.size(); ++rank) {
    all = std::max(all, ranks[rank].seconds() + least_waiting(seconds, rank, transfer, is_split));
    ranks[rank].bubble = least_waiting(seconds, rank, transfer, /*is_split=*/true);
    step.end_step_at_least(stages[rank], ranks[rank]);
  }
  ranks[0].bubble = all - (ranks[0].seconds() - ranks[0].sums - ranks[0].gathers - ranks[0].optimizer);
  return *std::max_element(ranks.begin(), ranks.end(), is_less);
}

}  // namespace

LayoutTime predict_layout_time(const PlannedModel& model, const PlannedCluster& cluster,
                               const PlannedTraining& training, const PlannedLayout& layout,
                               StagePlans& plans, bool is_bound) {
  const StepSeconds step(model, cluster, training, layout);
  const auto& stages = plans.stages(model, layout);
  const auto micro_batches = static_cast<double>(layout.micro_batches);
  std::vector<std::vector<StageSeconds>> seconds(stages.size());
  std::vector<LayoutTime> ranks(stages.size());
  for (size_t rank = 0; rank < stages.size(); ++rank) {
    for (const auto& range : stages[rank]) {
      const auto& stage = seconds[rank].emplace_back(step.of_stage(range));
      add(ranks[rank], stage.forward, micro_batches);
      add(ranks[rank], stage.backward, micro_batches);
    }
  }
  LayoutTime time = ranks[0];
  if (layout.pipeline == 1) {
    step.end_step(stages[0].front(), seconds[0][0].backward.seconds(), time);
  } else if (is_bound) {
    time = least_of_pipeline(step, layout, stages, seconds, std::move(ranks));
  } else {
    time = predict_pipeline(step, layout, stages, seconds, std::move(ranks), plans);
  }
  const double input = static_cast<double>(training.global_batch) / cluster.examples_per_second;
  time.input = std::max(0.0, input - time.seconds());
  return time;
}

}  // namespace lockstep
