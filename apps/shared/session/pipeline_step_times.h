#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "lockstep/runtime/replicas/per_replica.h"
#include "lockstep/strategies/parallel/pipeline_stages.h"
#include "lockstep/training/reporting/records/pipeline_record.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep::apps {

/// Measures when the ranks of a model that is cut into stages compute what in one step, the third of a fit:
/// before it, memory is allocated. A collective of all replicas in that step.
///
/// Example:
///
///     const auto stages = trainer.model().map([](const Pipeline& model) { return &model.ptr()->stages(); });
///     callbacks.push_back(std::make_shared<PipelineStepTimes>(stages, [&](PipelineRecord step) {
///       record->set_pipeline(std::move(step));
///     }));
class PipelineStepTimes : public Callback {
 public:
  /// Gets the times of the first replica, on all workers.
  using Receiver = std::function<void(PipelineRecord)>;

  /// `stages` are those of each rank's model, and live as long as the fit.
  PipelineStepTimes(PerReplica<PipelineStages*> stages, Receiver receive)
      : stages_(std::move(stages)), receive_(std::move(receive)) {}
  void on_step_begin(FitState& state) override;
  void on_step_end(FitState& state) override;

 private:
  PerReplica<PipelineStages*> stages_;
  Receiver receive_;
  int64_t steps_begun_ = 0;
};

}  // namespace lockstep::apps
