#pragma once

#include <vector>

#include "lockstep/training/layouts/internal/stage_ranges.h"
#include "lockstep/training/layouts/internal/unit_seconds.h"
#include "lockstep/training/layouts/layout_planner.h"

namespace lockstep {

/// A stage of a rank in one micro-batch: what LayoutTime has of it, and how it divides.
struct StageSeconds {
  LayoutTime forward, backward;
  bool is_halved = true;  ///< whether the weights' half of backward can come later

  double all() const { return forward.seconds() + backward.seconds(); }
};

/// The seconds that the parts of a model take in a layout: in a micro-batch, and after the last one. The
/// arguments must outlive it.
class StepSeconds {
 public:
  StepSeconds(const PlannedModel& model, const PlannedCluster& cluster, const PlannedTraining& training,
              const PlannedLayout& layout);

  StageSeconds of_stage(const StageRange& range) const;
  /// Of a message between two stages.
  double transfer_seconds() const;

  // The following add what comes after the micro-batches of a rank: sums of gradients, gathers and the
  // optimizer's step.

  /// Without a pipeline. The last backward, of all parts, hides sums in part.
  void end_step(const StageRange& all, double last_backward, LayoutTime& time) const;
  /// With a pipeline, whose stages sum their gradients once their last backward is done. `ends` are the
  /// moments of that for each stage of the rank, whose last one is the end of its computing.
  void end_step_of_stages(const std::vector<StageRange>& ranges, const std::vector<double>& ends,
                          LayoutTime& time) const;
  /// The least that end_step_of_stages() could add, whatever the schedule.
  void end_step_at_least(const std::vector<StageRange>& ranges, LayoutTime& time) const;

 private:
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

  /// Of the parameters of a rank.
  struct RankBytes {
    double dense = 0;
    double experts = 0;
  };

  const KindSeconds& kind(size_t part) const { return kinds_[model_.parts[part]]; }
  bool has_units() const { return layout_.stage == 3 && layout_.parts() > 1; }
  double seconds_of(const PlannedWork& work) const;
  double packing_seconds(double bytes) const;
  double accumulation_seconds(const KindSeconds& kind) const;
  std::vector<UnitSeconds> units_of(const StageRange& range) const;
  double exposed_units(double waited, double seconds) const;
  RankBytes bytes_of(const std::vector<StageRange>& ranges) const;
  void end_gradients(const RankBytes& bytes, LayoutTime& time) const;
  double num_buckets(const RankBytes& bytes) const;
  double sums_in_buckets(const RankBytes& bytes) const;
  double exposed_sums(const RankBytes& bytes, double backward) const;
  double sums_of(double bytes) const;
  double sums_of_experts(double bytes) const;

  const PlannedModel& model_;
  const PlannedCluster& cluster_;
  const PlannedTraining& training_;
  const PlannedLayout& layout_;
  double tokens_ = 0;  // examples, or their share on the ranks along "context"
  std::vector<KindSeconds> kinds_;
};

}  // namespace lockstep
