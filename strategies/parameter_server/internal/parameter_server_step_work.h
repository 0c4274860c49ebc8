#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "lockstep/strategies/coordinator/closure_work.h"
#include "lockstep/strategies/parameter_server/internal/served_variables.h"
#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"

namespace lockstep {

/// Report that a slot of a step returns with the function's results.
struct StepReport {
  UpdateCounts counts;
  WorkerTimes times;
};

/// Removes the report from a slot's returned values. Throws InvalidArgument if there is none.
StepReport take_report(ClosureValues& values);

/// One slot of a step that passes through a worker.
class ParameterServerStrategy::StepWork : public ClosureWork {
 public:
  /// `run` is the number of the run_steps() call that it belongs to.
  StepWork(ParameterServerStrategy& strategy, const StepParts& parts, const StepSlot& slot, int64_t run)
      : strategy_(strategy), parts_(parts), slot_(slot), run_(run) {}

  void prepare() override;
  ClosureValues run() override;
  void finish(ClosureValues& results) override;
  bool looks_ahead() const override { return strategy_.looks_ahead_; }

  bool only_reads() const { return parts_.only_reads; }
  /// Call before a Strategy::run(). Sends the gradients of an earlier run first. Returns the values to begin
  /// with; null: the servers' current ones.
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
