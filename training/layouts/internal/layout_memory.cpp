#include "lockstep/training/layouts/internal/layout_memory.h"

#include <algorithm>

#include "lockstep/training/layouts/internal/axis_links.h"

namespace lockstep {
namespace {

/// A kind of part on a rank in a layout, in bytes of a micro-batch.
struct KindBytes {
  double parameters = 0;  // of the rank's part of cut layers and experts
  double dense = 0;       // of them, those that sharding divides
  double largest = 0;     // of its tensors
  double input = 0;
  double saved = 0;
  double split_extra = 0;
  double forward_extra = 0;
  double backward_extra = 0;
  bool is_recomputed = false;
  bool has_late_gradients = false;

  double kept() const { return is_recomputed ? input : saved; }
};

/// Replaces `most` if `memory` is more.
void take_more(const LayoutMemory& memory, LayoutMemory& most) {
  if (memory.peak() > most.peak()) most = memory;
}

class RankMemory {
 public:
  RankMemory(const PlannedModel& model, const PlannedCluster& cluster, const PlannedTraining& training,
             const PlannedLayout& layout)
      : model_(model), training_(training), layout_(layout), parts_(static_cast<double>(layout.parts())) {
    const double examples = examples_of_micro_batch(training, layout);
    const double tokens = examples / static_cast<double>(layout.context);
    const auto on_rank = [&](const CutAmount& amount, double times) {
      return times * amount.on_rank(layout.tensor, layout.has_sequence_shards);
    };
    const auto bytes = static_cast<double>(training.parameter_bytes);
    for (const auto& kind : model.kinds) {
      kinds_.push_back({.parameters = bytes * elements_on_rank(kind, layout),
                        .dense = bytes * dense_elements(kind, layout),
                        .largest = bytes * on_rank(kind.largest_tensor, 1),
                        .input = on_rank(kind.input, tokens),
                        .saved = on_rank(kind.saved, tokens) + on_rank(kind.fixed_saved, 1),
                        .split_extra = on_rank(kind.split_extra, tokens),
                        .forward_extra = on_rank(kind.forward_extra, tokens) + kind.fixed_extra,
                        .backward_extra = on_rank(kind.backward_extra, tokens) + kind.fixed_extra,
                        .is_recomputed = layout.recomputes && kind.is_recomputed,
                        .has_late_gradients = kind.has_late_gradients});
    }
    inputs_ = examples * model.input_bytes;
    has_units_ = layout.stage == 3 && layout.parts() > 1;
    if (cluster.shares_units)
      units_shared_by_ = static_cast<double>(along_axis(cluster, layout, sharded_axis(layout)).local);
  }

  LayoutMemory of(const std::vector<StageRange>& stages, const std::vector<AliveStages>& states) {
    sum_up_parameters(stages);
    LayoutMemory kept{.parameters = layout_.stage == 3 ? divided_ : parameters_,
                      .gradients = kept_gradients(),
                      .optimizer_state = static_cast<double>(training_.optimizer_states) * divided_,
                      .communication = messages(stages),
                      .inputs = inputs_};
    std::vector<double> whole, between;
    std::vector<LayoutMemory> alone;
    for (const auto& range : stages) {
      double kept_by_stage = 0, split = 0;
      for (size_t part = range.begin; part < range.end; ++part) {
        kept_by_stage += kind(part).kept();
        split += kind(part).split_extra;
      }
      // The first stage has no gradients to compute for another one: all of its backward is in the second
      // half, until when it keeps the gradient of its result.
      if (range.begin == 0) split = range.end < model_.parts.size() ? kind(range.end).input : 0;
      whole.push_back(kept_by_stage);
      between.push_back(split);
      alone.push_back(peak_of(range, kept));
    }
    LayoutMemory most;
    for (const auto& state : states) {
      double others = 0;
      for (size_t i = 0; i < stages.size(); ++i)
        others += static_cast<double>(state[i]) * whole[i] +
                  static_cast<double>(state[stages.size() + i]) * between[i];
      for (size_t i = 0; i < stages.size(); ++i) {
        if (state[i] == 0) continue;
        LayoutMemory memory = alone[i];
        memory.activations += others - whole[i];
        take_more(memory, most);
      }
    }
    return most;
  }

 private:
  const KindBytes& kind(size_t part) const { return kinds_[model_.parts[part]]; }

  void sum_up_parameters(const std::vector<StageRange>& stages) {
    parameters_ = divided_ = 0;
    bool has_first = false, has_last = false;
    for (const auto& range : stages) {
      for (size_t part = range.begin; part < range.end; ++part) {
        parameters_ += kind(part).parameters;
        divided_ += kind(part).parameters - kind(part).dense * (1 - 1 / parts_);
      }
      has_first = has_first || range.begin == 0;
      has_last = has_last || range.end == model_.parts.size();
    }
    if (!has_first || !has_last) return;
    const double shared = static_cast<double>(training_.parameter_bytes) *
                          model_.shared_elements.on_rank(layout_.tensor, false);
    parameters_ -= shared;
    divided_ -= shared / parts_;
  }

  /// Returns the gradients that are there all the time, in the last micro-batches at the latest.
  double kept_gradients() const {
    const bool has_sums = layout_.replicas() * layout_.context > 1;
    const double summed = !has_sums ? 0 : layout_.stage >= 2 ? divided_ : parameters_;
    if (layout_.micro_batches == 1 && layout_.pipeline == 1) return summed;
    // Those of earlier micro-batches, besides the place of the sums.
    return summed + (layout_.stage == 3 ? divided_ : parameters_);
  }

  /// Returns the bytes of activations and gradients that wait between two stages.
  double messages(const std::vector<StageRange>& stages) const {
    if (layout_.pipeline == 1) return 0;
    constexpr double kBuffers = 2;  // of PipelineCheckOptions
    const double ends =
        (stages.front().begin == 0 ? 0 : 1) + (stages.back().end == model_.parts.size() ? 0 : 1);
    return kBuffers * ends * kind(std::min<size_t>(1, model_.parts.size() - 1)).input;
  }

  /// Follows one micro-batch forward and backward through a stage, beside what is kept.
  LayoutMemory peak_of(const StageRange& range, const LayoutMemory& kept) const {
    LayoutMemory most = kept;
    double live = 0;
    const auto take = [&](size_t part, double activations, LayoutMemory more) {
      more.activations = activations;
      if (has_units_) add_whole_units(range, part, more);
      take_more(more, most);
    };
    for (size_t part = range.begin; part < range.end; ++part) {
      take(part, live + kind(part).saved + kind(part).forward_extra, kept);
      live += kind(part).kept();
    }
    double made = 0;  // parameters whose gradients backward has made
    for (size_t part = range.end; part-- > range.begin;) {
      const auto& own = kind(part);
      LayoutMemory before = kept, first = kept, last = kept;
      add_gradients(range, part, {.made = made, .own = 0}, before);
      add_gradients(range, part, {.made = made, .own = own.largest}, first);
      add_gradients(range, part, {.made = made, .own = own.parameters}, last);
      const double again = live + own.saved - own.kept();
      if (own.is_recomputed) take(part, again + own.forward_extra, before);
      if (own.has_late_gradients) {
        take(part, again + own.backward_extra, before);
        take(part, again, last);
      } else {
        take(part, again + own.backward_extra, first);
        take(part, live - own.kept() + 2 * own.input, last);
      }
      made += own.parameters;
      live -= own.kept();
    }
    return most;
  }

  struct MadeGradients {
    double made = 0;  // bytes, by the parts after this one
    double own = 0;   // by this part
  };

  /// Adds the gradients that are there besides the kept ones in backward of a part.
  void add_gradients(const StageRange& range, size_t part, const MadeGradients& gradients,
                     LayoutMemory& memory) const {
    if (memory.gradients == 0) {  // A single replica's are there once backward has made them.
      memory.gradients = gradients.made + gradients.own;
    } else if (gradients.own > 0) {
      // A unit's are whole until they are summed; others are copied or added one by one.
      memory.gradients += has_units_ ? gradients.own : std::min(gradients.own, kind(part).largest);
    }
    // The sums of late ones are done behind another unit, such as a head's behind its norm.
    if (has_units_ && part + 1 < range.end && !kind(part + 1).has_late_gradients)
      memory.communication += kind(part + 1).dense * (1 + 1 / parts_);
    if (layout_.stage != 2 || layout_.parts() == 1 || gradients.made + gradients.own == 0) return;
    // One bucket fills while the one before it is summed.
    const auto first = static_cast<double>(training_.first_bucket_bytes);
    const auto bucket = static_cast<double>(training_.bucket_bytes);
    const double largest = kind(part).largest;
    const bool is_first = gradients.made + gradients.own <= first;
    memory.buckets = std::min(parameters_, is_first ? first + largest : bucket + std::max(bucket, largest));
  }

  /// Adds the parameters of the unit that computes and of the next one, whichever that is.
  void add_whole_units(const StageRange& range, size_t part, LayoutMemory& memory) const {
    const double before = part > range.begin ? kind(part - 1).dense : 0;
    const double after = part + 1 < range.end ? kind(part + 1).dense : 0;
    memory.gathered_units = (kind(part).dense + std::max(before, after)) / units_shared_by_;
  }

  const PlannedModel& model_;
  const PlannedTraining& training_;
  const PlannedLayout& layout_;
  double parts_;  // that divide parameters or state
  std::vector<KindBytes> kinds_;
  double inputs_ = 0;
  bool has_units_ = false;
  double units_shared_by_ = 1;
  double parameters_ = 0;  // of the rank at hand
  double divided_ = 0;     // of them, this rank's part
};

}  // namespace

double examples_of_micro_batch(const PlannedTraining& training, const PlannedLayout& layout) {
  const int64_t of_replica = (training.global_batch + layout.replicas() - 1) / layout.replicas();
  const int64_t of_largest = (of_replica + layout.micro_batches - 1) / layout.micro_batches;
  return static_cast<double>(of_largest);
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
    ranks.push_back(layout.pipeline == 1 ? memory.of(stages[rank], {{1, 0}})
                                         : memory.of(stages[rank], plans.alive(layout, rank)));
  }
  return ranks;
}

}  // namespace lockstep
