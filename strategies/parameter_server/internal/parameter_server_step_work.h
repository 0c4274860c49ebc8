#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "lockstep/strategies/coordinator/closure_work.h"
#include "lockstep/strategies/parameter_server/internal/served_variables.h"
#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"

namespace lockstep {

/// What a slot of a step sends back beside the function's results.
struct StepReport {
  UpdateCounts counts;
  WorkerTimes times;
};

/// Takes it off what a slot has returned. Throws InvalidArgument where there is none.
StepReport take_report(ClosureValues& values);

/// A slot of a step on its way through a worker.
class ParameterServerStrategy::StepWork : public ClosureWork {
 public:
  /// `run` is the number of the run_steps() that it is of.
  StepWork(ParameterServerStrategy& strategy, const StepParts& parts, const StepSlot& slot, int64_t run)
      : strategy_(strategy), parts_(parts), slot_(slot), run_(run) {}

  void prepare() override;
  ClosureValues run() override;
  void finish(ClosureValues& results) override;
  bool looks_ahead() const override { return strategy_.looks_ahead_; }

  bool only_reads() const { return parts_.only_reads; }
  /// Before a Strategy::run(): an earlier one's gradients are sent first. The values that it begins with;
  /// null: those that the servers have now.
  std::shared_ptr<const ServedVariables::Values> begin_run();

 private:
  using Clock = std::chrono::steady_clock;

  ClosureValues run_alone();
  void push();

  ParameterServerStrategy& strategy_;
  const StepParts& parts_;
  const StepSlot slot_;
  const int64_t run_;
  const Clock::time_point given_ = Clock::now();
  std::shared_ptr<void> batch_;
  std::shared_ptr<const ServedVariables::Values> values_;
  ServedVariables::Gradients gradients_;
  uint64_t num_pushes_ = 0;
  StepReport report_;
};

}  // namespace lockstep
