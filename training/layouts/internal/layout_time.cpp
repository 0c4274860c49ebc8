#include "lockstep/training/layouts/internal/layout_time.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "lockstep/strategies/pipeline/pipeline_timeline.h"
#include "lockstep/training/layouts/internal/axis_links.h"
#include "lockstep/training/layouts/internal/layout_memory.h"

namespace lockstep {
namespace {

/// A kind of part on a rank, in seconds of a micro-batch.
struct KindSeconds {
  double forward = 0, backward = 0;  // of operators
  double summed_forward = 0, summed_backward = 0;
  double context_forward = 0, context_backward = 0;
  double routed = 0;      // in each direction
  double parameters = 0;  // bytes
  double dense = 0;       // of them, those that sharding divides
  double gather = 0;      // of its parameters, or the sums of its gradients
  bool is_recomputed = false;
};

/// A stage of a rank in one micro-batch: what LayoutTime has of it, and how it divides.
struct StageSeconds {
  LayoutTime forward, backward;
  bool is_halved = true;  // whether the weights' half of backward can come later

  double all() const { return forward.seconds() + backward.seconds(); }
};

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

class StepSeconds {
 public:
  StepSeconds(const PlannedModel& model, const PlannedCluster& cluster, const PlannedTraining& training,
              const PlannedLayout& layout)
      : model_(model), cluster_(cluster), training_(training), layout_(layout) {
    const double examples = examples_of_micro_batch(training, layout);
    tokens_ = examples / static_cast<double>(layout.context);
    const auto tensor = along_axis(cluster, layout, PlannedAxis::kTensor);
    const auto context = along_axis(cluster, layout, PlannedAxis::kContext);
    const auto experts = along_axis(cluster, layout, PlannedAxis::kExpert);
    const auto shards = along_axis(cluster, layout, sharded_axis(layout));
    const auto bytes = static_cast<double>(training.parameter_bytes);
    for (const auto& kind : model.kinds) {
      KindSeconds seconds{.forward = seconds_of(kind.forward), .backward = seconds_of(kind.backward)};
      if (layout.tensor > 1) {
        seconds.summed_forward = sum_seconds(tensor, tokens_ * kind.summed_forward);
        seconds.summed_backward = sum_seconds(tensor, tokens_ * kind.summed_backward);
      }
      if (layout.context > 1) {
        // Each rank passes the others' on; backward passes the gradients, too.
        const double own = tokens_ * kind.keys_and_values / static_cast<double>(layout.tensor);
        if (own > 0) {
          const auto turns = static_cast<double>(layout.context - 1);
          seconds.context_forward = turns * message_seconds(context, own);
          seconds.context_backward = turns * message_seconds(context, 2 * own);
        }
      }
      if (layout.expert > 1 && kind.routed > 0)
        seconds.routed = 2 * exchange_seconds(experts, tokens_ * kind.routed);
      seconds.parameters = bytes * elements_on_rank(kind, layout);
      seconds.dense = bytes * dense_elements(kind, layout);
      if (layout.stage == 3 && layout.parts() > 1) seconds.gather = gather_seconds(shards, seconds.dense);
      if (layout.has_sequence_shards)
        seconds.summed_backward += kind.vector_sums * sum_seconds(tensor, bytes * kind.vector_elements);
      seconds.backward += accumulation_seconds(seconds);
      seconds.is_recomputed = layout.recomputes && kind.is_recomputed;
      kinds_.push_back(seconds);
    }
  }

  StageSeconds of_stage(const StageRange& range) const {
    StageSeconds stage;
    auto& [forward, backward, is_halved] = stage;
    for (size_t part = range.begin; part < range.end; ++part) {
      const auto& own = kind(part);
      forward.operators += own.forward;
      forward.cut_layers += own.summed_forward;
      forward.sequences += own.context_forward;
      forward.experts += own.routed;
      backward.operators += own.backward;
      backward.cut_layers += own.summed_backward;
      backward.sequences += own.context_backward;
      backward.experts += own.routed;
      if (!own.is_recomputed) continue;
      is_halved = false;
      backward.recomputation += own.forward;
      backward.cut_layers += own.summed_forward;
      backward.sequences += own.context_forward;
      backward.experts += own.routed;
    }
    if (layout_.stage == 3 && layout_.parts() > 1) {
      is_halved = false;
      add_units(range, stage);
    }
    return stage;
  }

  /// Of a message between two stages.
  double transfer_seconds() const {
    if (layout_.pipeline == 1) return 0;
    const auto& inner = model_.part(model_.parts.size() > 1 ? 1 : 0);
    const double bytes = tokens_ * inner.input.on_rank(layout_.tensor, layout_.has_sequence_shards);
    return message_seconds(along_axis(cluster_, layout_, PlannedAxis::kPipeline), bytes);
  }

  /// Adds what comes after the micro-batches of a rank without a pipeline: sums that the last backward does
  /// not hide, and the optimizer.
  void end_step(const std::vector<StageRange>& ranges, double last_backward, LayoutTime& time) const {
    const RankBytes bytes = bytes_of(ranges);
    time.sums = exposed_sums(bytes, last_backward);
    step_optimizer(bytes, time);
  }

  /// The same with a pipeline, whose stages sum their gradients once their last backward is done. `ends` are
  /// the moments of that for each stage of the rank, whose last one is the end of its computing.
  void end_step_of_stages(const std::vector<StageRange>& ranges, const std::vector<double>& ends,
                          LayoutTime& time) const {
    std::vector<size_t> order(ranges.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ends[a] < ends[b]; });
    double summed = 0, all = 0;
    for (const size_t stage : order) {
      const double own = sums_in_buckets(bytes_of({ranges[stage]}));
      summed = std::max(summed, ends[stage]) + own;
      all += own;
    }
    time.sums = summed - ends[order.back()];
    time.sums += (all - std::min(all, time.sums)) * cluster_.taken_share;
    step_optimizer(bytes_of(ranges), time);
  }

  /// Adds the least that end_step_of_stages() could, whatever the schedule.
  void end_step_at_least(const std::vector<StageRange>& ranges, LayoutTime& time) const {
    time.sums = std::numeric_limits<double>::infinity();
    for (const auto& range : ranges) time.sums = std::min(time.sums, sums_in_buckets(bytes_of({range})));
    step_optimizer(bytes_of(ranges), time);
  }

 private:
  /// Of the parameters of a rank.
  struct RankBytes {
    double dense = 0;
    double experts = 0;
  };

  const KindSeconds& kind(size_t part) const { return kinds_[model_.parts[part]]; }

  RankBytes bytes_of(const std::vector<StageRange>& ranges) const {
    RankBytes bytes;
    for (const auto& range : ranges) {
      for (size_t part = range.begin; part < range.end; ++part) {
        bytes.dense += kind(part).dense;
        bytes.experts += kind(part).parameters - kind(part).dense;
      }
    }
    return bytes;
  }

  /// Adds the optimizer's step, and gathering what it has stepped.
  void step_optimizer(const RankBytes& bytes, LayoutTime& time) const {
    const auto parts = static_cast<double>(layout_.parts());
    if ((layout_.stage == 1 || layout_.stage == 2) && parts > 1)
      time.gathers = gather_seconds(along_axis(cluster_, layout_, sharded_axis(layout_)), bytes.dense);
    // Parameters are read and written, as is each state; gradients are read.
    const double touched = 3 + 2 * static_cast<double>(training_.optimizer_states);
    time.optimizer = touched * (bytes.dense / parts + bytes.experts) / cluster_.bytes_per_second;
  }

  double seconds_of(const PlannedWork& work) const {
    const auto on_rank = [&](const CutAmount& amount) {
      return tokens_ * amount.on_rank(layout_.tensor, layout_.has_sequence_shards);
    };
    const double bytes = on_rank(work.bytes) + work.fixed_bytes.on_rank(layout_.tensor, false);
    return (on_rank(work.flops) - on_rank(work.skipped_flops)) / cluster_.flops_per_second +
           bytes / cluster_.bytes_per_second + work.operators * cluster_.operator_seconds;
  }

  /// Of adding the gradients of a micro-batch to those of the ones before it, as a mean over all of them.
  double accumulation_seconds(const KindSeconds& kind) const {
    constexpr double kTouched = 3;  // two are read, and one is written
    const auto micro_batches = static_cast<double>(layout_.micro_batches);
    const double divided = layout_.stage == 3 ? static_cast<double>(layout_.parts()) : 1;
    const double bytes = kind.dense / divided + kind.parameters - kind.dense;
    return (micro_batches - 1) / micro_batches * kTouched * bytes / cluster_.bytes_per_second;
  }

  /// Adds the part of communication that is not hidden behind computing for `hiding` seconds.
  double exposed(double seconds, double hiding) const {
    return std::max(seconds - hiding, seconds * cluster_.taken_share);
  }

  /// A unit is gathered while the part before it computes, and its gradients are summed while the next one's
  /// backward computes.
  void add_units(const StageRange& range, StageSeconds& stage) const {
    double before = 0;
    for (size_t part = range.begin; part < range.end; ++part) {
      stage.forward.units += exposed(kind(part).gather, before);
      before = kind(part).forward;
    }
    before = 0;
    double to_sum = 0;
    for (size_t part = range.end; part-- > range.begin;) {
      stage.backward.units += exposed(kind(part).gather + to_sum, before);
      before = kind(part).backward;
      to_sum = kind(part).gather;
    }
    stage.backward.units += to_sum;
  }

  double num_buckets(const RankBytes& bytes) const {
    return std::ceil((bytes.dense + bytes.experts) / static_cast<double>(training_.bucket_bytes));
  }

  /// Of all sums of the gradients, one bucket after the other.
  double sums_in_buckets(const RankBytes& bytes) const {
    const double buckets = num_buckets(bytes);
    return buckets == 0
               ? 0
               : buckets * (sums_of(bytes.dense / buckets) + sums_of_experts(bytes.experts / buckets));
  }

  /// Returns how long the sums of a rank's gradients take after backward, whose buckets come evenly while it
  /// takes `backward` seconds.
  double exposed_sums(const RankBytes& bytes, double backward) const {
    const double buckets = num_buckets(bytes);
    if (buckets == 0) return 0;
    const double all = sums_in_buckets(bytes);
    const double last = std::max(backward / buckets + all, backward + all / buckets) - backward;
    return std::max(last, all * cluster_.taken_share);
  }

  /// Of a bucket of dense parameters over all ranks that compute different examples or tokens.
  double sums_of(double bytes) const {
    const auto shards = along_axis(cluster_, layout_, sharded_axis(layout_));
    const auto copies = along_axis(cluster_, layout_, PlannedAxis::kData);
    const auto context = along_axis(cluster_, layout_, PlannedAxis::kContext);
    const bool is_divided = layout_.stage >= 2 && layout_.parts() > 1;
    double seconds = 0;
    double left = bytes;
    if (layout_.stage == 3 && layout_.parts() > 1) {
      left = bytes / static_cast<double>(layout_.parts());  // units have been summed along this axis
    } else if (is_divided) {
      seconds += gather_seconds(shards, bytes);
      left = bytes / static_cast<double>(layout_.parts());
    } else {
      seconds += sum_seconds(shards, bytes);
    }
    // Ranks along "expert" have the same dense parameters.
    if (sharded_axis(layout_) != PlannedAxis::kExpert)
      seconds += sum_seconds(along_axis(cluster_, layout_, PlannedAxis::kExpert), left);
    return seconds + sum_seconds(copies, left) + sum_seconds(context, left);
  }

  /// The same of a bucket of experts, which the ranks along "expert" have different ones of.
  double sums_of_experts(double bytes) const {
    if (bytes <= 0) return 0;
    return sum_seconds(along_axis(cluster_, layout_, PlannedAxis::kShard), bytes) +
           sum_seconds(along_axis(cluster_, layout_, PlannedAxis::kData), bytes) +
           sum_seconds(along_axis(cluster_, layout_, PlannedAxis::kContext), bytes);
  }

  const PlannedModel& model_;
  const PlannedCluster& cluster_;
  const PlannedTraining& training_;
  const PlannedLayout& layout_;
  double tokens_ = 0;  // examples, or their share on the ranks along "context"
  std::vector<KindSeconds> kinds_;
};

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
    step.end_step(stages[0], seconds[0][0].backward.seconds(), time);
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
