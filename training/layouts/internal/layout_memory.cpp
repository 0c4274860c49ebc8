#include "lockstep/training/layouts/internal/layout_memory.h"

#include <algorithm>

#include "lockstep/training/layouts/internal/axis_links.h"

namespace lockstep {
namespace {

/// A kind of part on a rank in a layout, in bytes of a micro-batch.
struct KindBytes {
  double parameters = 0;  // whole ones, of the rank's part of cut layers
  double largest = 0;     // of its tensors
  double input = 0;
  double saved = 0;
  double forward_extra = 0;
  double backward_extra = 0;
  bool is_recomputed = false;

  double kept() const { return is_recomputed ? input : saved; }
};

/// The most activations, and the gradients that are there with them.
struct Peak {
  double activations = 0;
  double gradients = 0;

  void take(double more_activations, double more_gradients) {
    if (more_activations + more_gradients <= activations + gradients) return;
    activations = more_activations;
    gradients = more_gradients;
  }
};

class RankMemory {
 public:
  RankMemory(const PlannedModel& model, const PlannedCluster& cluster, const PlannedTraining& training,
             const PlannedLayout& layout)
      : model_(model), training_(training), layout_(layout) {
    const double examples = examples_of_micro_batch(training, layout);
    const double tokens = examples / static_cast<double>(layout.context);
    const auto on_rank = [&](const CutAmount& amount, double times) {
      return times * amount.on_rank(layout.tensor, layout.has_sequence_shards);
    };
    const auto bytes = static_cast<double>(training.parameter_bytes);
    for (const auto& kind : model.kinds) {
      kinds_.push_back({.parameters = bytes * elements_on_rank(kind, layout),
                        .largest = bytes * on_rank(kind.largest_tensor, 1),
                        .input = on_rank(kind.input, tokens),
                        .saved = on_rank(kind.saved, tokens) + on_rank(kind.fixed_saved, 1),
                        .forward_extra = on_rank(kind.forward_extra, tokens),
                        .backward_extra = on_rank(kind.backward_extra, tokens),
                        .is_recomputed = layout.recomputes && kind.is_recomputed});
    }
    inputs_ = examples * model.input_bytes;
    units_shared_by_ = cluster.shares_units ? along_axis(cluster, layout, sharded_axis(layout)).local : 1;
  }

  LayoutMemory of(const std::vector<StageRange>& stages, const std::vector<AliveStages>& states) {
    sum_up_parameters(stages);
    LayoutMemory memory{.inputs = inputs_};
    const auto parts = static_cast<double>(layout_.parts());
    const bool has_sums = layout_.replicas() * layout_.context > 1;
    memory.parameters = layout_.stage == 3 ? parameters_ / parts : parameters_;
    memory.optimizer_state = static_cast<double>(training_.optimizer_states) * parameters_ / parts;
    const Peak peak = activations_of(stages, states, has_sums);
    memory.activations = peak.activations;
    memory.gradients = peak.gradients;
    if (layout_.stage == 2 && parts > 1) {
      const auto bucket = static_cast<double>(training_.bucket_bytes);
      memory.buckets = std::min(parameters_, bucket + std::max(bucket, largest_));
    }
    if (layout_.stage == 3 && parts > 1) {
      memory.gathered_units = two_units_ / static_cast<double>(units_shared_by_);
      memory.communication += unit_ * (1 + 1 / parts);  // the gradients of one are summed
    }
    if (layout_.pipeline > 1) {
      constexpr double kBuffers = 2;  // of PipelineCheckOptions
      const bool is_first = stages.front().begin == 0;
      const bool is_last = stages.back().end == model_.parts.size();
      const double boundary = kinds_[model_.parts[stages.front().begin == 0 && stages.front().size() > 1
                                                      ? 1
                                                      : stages.front().begin]].input;
      memory.communication += boundary * kBuffers * ((is_first ? 0 : 1) + (is_last ? 0 : 1));
    }
    return memory;
  }

 private:
  const KindBytes& kind(size_t part) const { return kinds_[model_.parts[part]]; }

  void sum_up_parameters(const std::vector<StageRange>& stages) {
    parameters_ = largest_ = unit_ = two_units_ = 0;
    bool has_first = false, has_last = false;
    for (const auto& range : stages) {
      double before = 0;
      for (size_t part = range.begin; part < range.end; ++part) {
        const auto& own = kind(part);
        parameters_ += own.parameters;
        largest_ = std::max(largest_, own.largest);
        unit_ = std::max(unit_, own.parameters);
        two_units_ = std::max(two_units_, before + own.parameters);
        before = own.parameters;
      }
      has_first = has_first || range.begin == 0;
      has_last = has_last || range.end == model_.parts.size();
    }
    if (has_first && has_last)
      parameters_ -= static_cast<double>(training_.parameter_bytes) *
                     model_.shared_elements.on_rank(layout_.tensor, false);
  }

  /// Returns the gradients that are there all the time, in the last micro-batches at the latest.
  double kept_gradients(bool has_sums) const {
    const auto parts = static_cast<double>(layout_.parts());
    const double summed = layout_.stage >= 2 ? parameters_ / parts : parameters_;
    if (layout_.micro_batches == 1 && layout_.pipeline == 1) return has_sums ? summed : 0;
    // Those of earlier micro-batches, besides the place of the sums.
    const double earlier = layout_.stage == 3 ? parameters_ / parts : parameters_;
    return earlier + (has_sums ? summed : 0);
  }

  Peak activations_of(const std::vector<StageRange>& stages, const std::vector<AliveStages>& states,
                      bool has_sums) const {
    const double kept = kept_gradients(has_sums);
    // A single replica's gradients are there once backward has made them.
    const bool grow = kept == 0;
    // In stage 3 a unit's gradients are whole until they are summed.
    const double in_transit = grow ? 0 : layout_.stage == 3 ? unit_ : largest_;
    std::vector<double> whole;
    std::vector<Peak> alone;
    for (const auto& range : stages) {
      double sum = 0;
      for (size_t part = range.begin; part < range.end; ++part) sum += kind(part).kept();
      whole.push_back(sum);
      alone.push_back(peak_of(range, grow));
    }
    Peak most;
    for (const auto& state : states) {
      double others = 0;
      for (size_t i = 0; i < stages.size(); ++i) others += static_cast<double>(state[i]) * whole[i];
      for (size_t i = 0; i < stages.size(); ++i) {
        if (state[i] > 0) most.take(others - whole[i] + alone[i].activations, alone[i].gradients);
      }
    }
    most.gradients += kept + in_transit;
    return most;
  }

  /// Follows one micro-batch forward and backward through a stage.
  Peak peak_of(const StageRange& range, bool gradients_grow) const {
    Peak peak;
    double live = 0;
    for (size_t part = range.begin; part < range.end; ++part) {
      const auto& own = kind(part);
      peak.take(live + own.saved + own.forward_extra, 0);
      live += own.kept();
    }
    double gradients = 0;
    for (size_t part = range.end; part-- > range.begin;) {
      const auto& own = kind(part);
      if (gradients_grow) gradients += own.parameters;
      const double computed_again = own.saved - own.kept();
      if (own.is_recomputed) peak.take(live + computed_again + own.forward_extra, gradients);
      peak.take(live + computed_again + own.backward_extra, gradients);
      live -= own.kept();
    }
    return peak;
  }

  const PlannedModel& model_;
  const PlannedTraining& training_;
  const PlannedLayout& layout_;
  std::vector<KindBytes> kinds_;
  double inputs_ = 0;
  int64_t units_shared_by_ = 1;
  // Of the rank at hand.
  double parameters_ = 0;
  double largest_ = 0;    // tensor
  double unit_ = 0;       // the largest one
  double two_units_ = 0;  // the largest neighbours
};

}  // namespace

double examples_of_micro_batch(const PlannedTraining& training, const PlannedLayout& layout) {
  const int64_t of_replica = (training.global_batch + layout.replicas() - 1) / layout.replicas();
  return static_cast<double>((of_replica + layout.micro_batches - 1) / layout.micro_batches);
}

std::vector<LayoutMemory> predict_layout_memory(const PlannedModel& model, const PlannedCluster& cluster,
                                                const PlannedTraining& training, const PlannedLayout& layout,
                                                StagePlans& plans) {
  RankMemory memory(model, cluster, training, layout);
  const auto& stages = plans.stages(model, layout);
  std::vector<LayoutMemory> ranks;
  ranks.reserve(stages.size());
  for (size_t rank = 0; rank < stages.size(); ++rank) {
    // Without a pipeline, micro-batches come one after the other.
    ranks.push_back(layout.pipeline == 1 ? memory.of(stages[rank], {{1}})
                                         : memory.of(stages[rank], plans.alive(layout, rank)));
  }
  return ranks;
}

}  // namespace lockstep
