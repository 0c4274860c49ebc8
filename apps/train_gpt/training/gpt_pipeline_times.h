#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "lockstep/models/gpt/gpt.h"
#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/training/reporting/records/pipeline_record.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep::apps {

/// Measures when the ranks of a model that is cut into stages compute what in one step, the third of a fit:
/// before it, memory is allocated. A collective of all replicas in that step.
class GptPipelineTimes : public Callback {
 public:
  /// `receive` gets the times of the first replica, on all workers.
  using Receiver = std::function<void(PipelineRecord)>;

  GptPipelineTimes(Mirrored<Gpt>& model, Receiver receive) : model_(model), receive_(std::move(receive)) {}
  void on_step_begin(FitState& state) override;
  void on_step_end(FitState& state) override;

 private:
  Mirrored<Gpt>& model_;
  Receiver receive_;
  int64_t steps_begun_ = 0;
};

}  // namespace lockstep::apps
