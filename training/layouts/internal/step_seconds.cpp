#include "lockstep/training/layouts/internal/step_seconds.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "lockstep/training/layouts/internal/axis_links.h"
#include "lockstep/training/layouts/internal/layout_memory.h"

namespace lockstep {

StepSeconds::StepSeconds(const PlannedModel& model, const PlannedCluster& cluster,
                         const PlannedTraining& training, const PlannedLayout& layout)
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
      const auto sums = [&](double summed) {
        return summed == 0 ? 0 : kind.sums * sum_seconds(tensor, tokens_ * summed / kind.sums);
      };
      seconds.summed_forward = sums(kind.summed_forward);
      seconds.summed_backward = sums(kind.summed_backward);
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
    if (has_units()) seconds.gather = gather_seconds(shards, seconds.dense);
    if (layout.has_sequence_shards)
      seconds.summed_backward += kind.vector_sums * sum_seconds(tensor, bytes * kind.vector_elements);
    seconds.backward += accumulation_seconds(seconds);
    if (has_units()) seconds.backward += packing_seconds(seconds.dense);
    seconds.is_recomputed = layout.recomputes && kind.is_recomputed;
    kinds_.push_back(seconds);
  }
}

StageSeconds StepSeconds::of_stage(const StageRange& range) const {
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
  if (!has_units()) return stage;
  is_halved = false;
  const auto units = units_of(range);
  double seconds = 0;
  for (const auto& unit : units) seconds += unit.gather;
  forward.units = exposed_units(waits_of_forward(units), seconds);
  backward.units = exposed_units(waits_of_backward(units, layout_.pipeline == 1), 2 * seconds);
  return stage;
}

std::vector<UnitSeconds> StepSeconds::units_of(const StageRange& range) const {
  std::vector<UnitSeconds> units;
  for (size_t part = range.begin; part < range.end; ++part) {
    const auto& own = kind(part);
    const double forward = own.forward + own.summed_forward + own.context_forward + own.routed;
    const double backward = own.backward + own.summed_backward + own.context_backward + own.routed;
    units.push_back({.forward = forward,
                     .backward = backward + (own.is_recomputed ? forward : 0),
                     .gather = own.gather,
                     .sum = own.gather});
  }
  return units;
}

/// Returns what a device that waits for the link loses; and if communication takes its computing, at least
/// what that takes.
double StepSeconds::exposed_units(double waited, double seconds) const {
  return std::max(waited, seconds * cluster_.taken_share);
}

double StepSeconds::transfer_seconds() const {
  if (layout_.pipeline == 1) return 0;
  const auto& inner = model_.part(model_.parts.size() > 1 ? 1 : 0);
  const double bytes = tokens_ * inner.input.on_rank(layout_.tensor, layout_.has_sequence_shards);
  return message_seconds(along_axis(cluster_, layout_, PlannedAxis::kPipeline), bytes);
}

void StepSeconds::end_step(const StageRange& all, double last_backward, LayoutTime& time) const {
  const RankBytes bytes = bytes_of({all});
  if (has_units() && bytes.experts == 0) {
    // The ranks with the same parts of units add theirs up behind the sums of these.
    auto units = units_of(all);
    const double waited = waits_of_backward(units, /*has_last_unit=*/true);
    double seconds = 0;
    for (size_t i = 0; i < units.size(); ++i) {
      const double own = sums_of(kind(all.begin + i).dense);
      units[i].sum += own;
      seconds += own;
    }
    time.sums = exposed_units(waits_of_backward(units, /*has_last_unit=*/true) - waited, seconds);
  } else {
    time.sums = exposed_sums(bytes, last_backward);
  }
  end_gradients(bytes, time);
}

void StepSeconds::end_step_of_stages(const std::vector<StageRange>& ranges, const std::vector<double>& ends,
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
  end_gradients(bytes_of(ranges), time);
}

void StepSeconds::end_step_at_least(const std::vector<StageRange>& ranges, LayoutTime& time) const {
  time.sums = std::numeric_limits<double>::infinity();
  for (const auto& range : ranges) time.sums = std::min(time.sums, sums_in_buckets(bytes_of({range})));
  end_gradients(bytes_of(ranges), time);
}

StepSeconds::RankBytes StepSeconds::bytes_of(const std::vector<StageRange>& ranges) const {
  RankBytes bytes;
  for (const auto& range : ranges) {
    for (size_t part = range.begin; part < range.end; ++part) {
      bytes.dense += kind(part).dense;
      bytes.experts += kind(part).parameters - kind(part).dense;
    }
  }
  return bytes;
}

/// Adds copies of gradients to buckets, the optimizer's step, and gathering what it has stepped.
void StepSeconds::end_gradients(const RankBytes& bytes, LayoutTime& time) const {
  const auto parts = static_cast<double>(layout_.parts());
  // Those of units are copied in backward.
  if (layout_.replicas() * layout_.context > 1)
    time.sums += packing_seconds(bytes.experts + (has_units() ? 0 : bytes.dense));
  if ((layout_.stage == 1 || layout_.stage == 2) && parts > 1)
    time.gathers = gather_seconds(along_axis(cluster_, layout_, sharded_axis(layout_)), bytes.dense);
  // Parameters are read and written, as is each state; gradients are read.
  const double touched = 3 + 2 * static_cast<double>(training_.optimizer_states);
  time.optimizer = touched * (bytes.dense / parts + bytes.experts) / cluster_.bytes_per_second;
}

double StepSeconds::seconds_of(const PlannedWork& work) const {
  const auto on_rank = [&](const CutAmount& amount) {
    return tokens_ * amount.on_rank(layout_.tensor, layout_.has_sequence_shards);
  };
  const double bytes = on_rank(work.bytes) + work.fixed_bytes.on_rank(layout_.tensor, false);
  return (on_rank(work.flops) - on_rank(work.skipped_flops)) / cluster_.flops_per_second +
         bytes / cluster_.bytes_per_second + work.operators * cluster_.operator_seconds;
}

/// Of copying gradients to where they are summed.
double StepSeconds::packing_seconds(double bytes) const {
  return 2 * bytes / cluster_.bytes_per_second;
}

/// Of adding the gradients of a micro-batch to those of the ones before it, as a mean over all of them.
double StepSeconds::accumulation_seconds(const KindSeconds& kind) const {
  constexpr double kTouched = 3;  // two are read, and one is written
  const auto micro_batches = static_cast<double>(layout_.micro_batches);
  const double divided = layout_.stage == 3 ? static_cast<double>(layout_.parts()) : 1;
  const double bytes = kind.dense / divided + kind.parameters - kind.dense;
  return (micro_batches - 1) / micro_batches * kTouched * bytes / cluster_.bytes_per_second;
}

double StepSeconds::num_buckets(const RankBytes& bytes) const {
  return std::ceil((bytes.dense + bytes.experts) / static_cast<double>(training_.bucket_bytes));
}

/// Of all sums of the gradients, one bucket after the other.
double StepSeconds::sums_in_buckets(const RankBytes& bytes) const {
  const double buckets = num_buckets(bytes);
  return buckets == 0 ? 0
                      : buckets * (sums_of(bytes.dense / buckets) + sums_of_experts(bytes.experts / buckets));
}

/// Returns how long the sums of a rank's gradients take after backward, whose buckets come evenly while it
/// takes `backward` seconds.
double StepSeconds::exposed_sums(const RankBytes& bytes, double backward) const {
  const double buckets = num_buckets(bytes);
  if (buckets == 0) return 0;
  const double all = sums_in_buckets(bytes);
  // In stage 2, ranks with the same part add theirs up once the next bucket leaves.
  const bool has_two_sums =
      layout_.stage == 2 && layout_.parts() > 1 && layout_.replicas() * layout_.context > layout_.parts();
  const double late = std::min(buckets, has_two_sums ? 2.0 : 1.0);
  const double last = std::max(late * backward / buckets + all, backward + late * all / buckets) - backward;
  return std::max(last, all * cluster_.taken_share);
}

/// Of a bucket of dense parameters over all ranks that compute different examples or tokens.
double StepSeconds::sums_of(double bytes) const {
  const auto shards = along_axis(cluster_, layout_, sharded_axis(layout_));
  const auto copies = along_axis(cluster_, layout_, PlannedAxis::kData);
  const auto context = along_axis(cluster_, layout_, PlannedAxis::kContext);
  const bool is_divided = layout_.stage >= 2 && layout_.parts() > 1;
  double seconds = 0;
  double left = bytes;
  if (has_units()) {
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
double StepSeconds::sums_of_experts(double bytes) const {
  if (bytes <= 0) return 0;
  return sum_seconds(along_axis(cluster_, layout_, PlannedAxis::kShard), bytes) +
         sum_seconds(along_axis(cluster_, layout_, PlannedAxis::kData), bytes) +
         sum_seconds(along_axis(cluster_, layout_, PlannedAxis::kContext), bytes);
}

}  // namespace lockstep
