#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/setting.h"
#include "lockstep/apps/train_ctr/ctr_report.h"
#include "lockstep/apps/train_ctr/ctr_training.h"
#include "lockstep/training/callbacks/record_run.h"
#include "lockstep/training/reporting/records/run_directory.h"

namespace lockstep::apps {

/// Facts that the record of a run shows in addition to its results.
struct CtrRecordOptions {
  std::string title;
  std::vector<Setting> settings;
  int64_t log_every = 100;           ///< steps between two that are recorded
  std::vector<std::string> hosts{};  ///< as in RecordRunOptions
};

/// Records a training in a run directory as RecordRun does for a Trainer. The steps up to each test count as
/// an epoch. Only the process that prints should make one. Not thread-safe.
class CtrRecord {
 public:
  /// The training's first step is `first_step`. `paths` come from a RunDirectory, which must outlive this
  /// object, and so must the strategy and the training. Throws std::system_error naming a file that cannot be
  /// written, and so do the other functions.
  CtrRecord(const RunPaths& paths, Strategy& strategy, CtrTraining& training, int64_t first_step,
            const CtrRecordOptions& options);
  ~CtrRecord();

  /// Call it before the first step, and before the first step after each test.
  void begin_epoch();
  /// Call it after each step; `step` counts from 0.
  void step_done(int64_t step, double loss);
  /// Call it after each test.
  void tested(const CtrScores& scores);
  /// Call it once when the steps are over, and before finish_record().
  void end_steps();

  RecordRun& recorder() { return recorder_; }

 private:
  class Progress;
  RecordRun recorder_;
  std::unique_ptr<Progress> progress_;
};

}  // namespace lockstep::apps
