#pragma once

#include <vector>

#include "lockstep/training/callbacks/fault_plan.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

/// Injects faults into a fit, to test recovery. Each fault happens after its step, before callbacks that come
/// later in the list are called. A job that was restarted injects none.
///
/// Example:
///
///     auto faults = std::make_shared<InjectFaults>(parse_faults("kill@rank1:step20"));
///     trainer.fit(batches, {.callbacks = {faults}});
class InjectFaults : public Callback {
 public:
  explicit InjectFaults(std::vector<Fault> faults) : faults_(std::move(faults)) {}
  void on_step_end(FitState& state) override;

 private:
  std::vector<Fault> faults_;
};

}  // namespace lockstep
