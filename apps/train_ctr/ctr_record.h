#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/apps/train_ctr/ctr_report.h"
#include "lockstep/apps/train_ctr/ctr_training.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/trainer/fit_loop.h"

namespace lockstep::apps {

/// Shows a training to callbacks that record, such as RecordRun and MlflowLogger, as a Trainer would. The
/// steps up to each test count as an epoch. Only the process that prints should make one. Not thread-safe.
class CtrRecord {
 public:
  /// The training's first step is `first_step`. The strategy and the training must outlive this object. All
  /// functions throw what the callbacks throw.
  CtrRecord(Strategy& strategy, CtrTraining& training, int64_t first_step, Callbacks recorders);
  ~CtrRecord();

  /// Call it before the first step, and before the first step after each test.
  void begin_epoch();
  /// Call it after each step; `step` counts from 0.
  void step_done(int64_t step, double loss);
  /// Call it after each test.
  void tested(const CtrScores& scores);
  /// Call it once when the steps are over, and before the records end.
  void end_steps();

 private:
  class Progress;
  Callbacks recorders_;
  std::unique_ptr<Progress> progress_;
};

}  // namespace lockstep::apps
