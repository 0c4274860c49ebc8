#pragma once

#include <vector>

#include "lockstep/training/callbacks/fault_plan.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

/// Makes faults happen in a fit, for tests of whatever has to survive them. Each happens after its step,
/// before the callbacks that were given later are called, and only in a job's first start: a job that is
/// started again after a fault goes on.
class InjectFaults : public Callback {
 public:
  explicit InjectFaults(std::vector<Fault> faults) : faults_(std::move(faults)) {}
  void on_step_end(FitState& state) override;

 private:
  std::vector<Fault> faults_;
};

}  // namespace lockstep
