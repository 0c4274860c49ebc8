#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/origin.h"
#include "lockstep/apps/train_ctr/ctr_backup.h"
#include "lockstep/apps/train_ctr/ctr_metrics.h"
#include "lockstep/apps/train_ctr/ctr_record.h"
#include "lockstep/apps/train_ctr/ctr_report.h"
#include "lockstep/apps/train_ctr/ctr_training.h"
#include "lockstep/strategies/core/stop_agreement.h"
#include "lockstep/training/callbacks/interruption.h"
#include "lockstep/training/callbacks/record_run.h"
#include "lockstep/training/monitoring/mlflow_logger.h"
#include "lockstep/training/reporting/records/run_directory.h"

namespace lockstep::apps {

/// A training whose data is open and whose values are known. The references must outlive the session.
struct PreparedCtr {
  Strategy& strategy;
  InterruptionGuard& interruption;
  const CtrOptions& options;
  const std::map<std::string, Origin>& origins;
  const std::string& resume;                    ///< command that resumes the training
  bool is_chief = false;                        ///< whether this process prints
  std::shared_ptr<TrainingMetrics> metrics;     ///< for Prometheus; may be null
  std::chrono::steady_clock::time_point began;  ///< when the program began
  std::optional<RunPaths> paths;                ///< where this process records the run; none if it does not
  std::vector<std::string> hosts;               ///< hosts of all workers, for the record; may be empty
  CtrFacts facts;
};

/// Trains to the end, and prints, records and saves along the way. Not thread-safe: use it from one thread.
class CtrSession {
 public:
  /// Restores the training from its backup, if there is one. Throws what CtrBackup and the record throw.
  CtrSession(PreparedCtr prepared, CtrTraining& training);
  ~CtrSession();

  /// Blocks until the training ends. Throws Stopped if a signal ends it, NumbersError if a loss is not
  /// finite, and what the strategy and the datasets throw. The record says how the training ended.
  void run();

 private:
  class Printer;

  void train_to_end();
  /// Makes steps up to `end`, or fewer if a signal stops them.
  void train_until(int64_t end);
  bool step_done(int64_t step, double loss);
  CtrCounts counts() const;
  CtrScores test();
  void stop();
  std::unique_ptr<CtrBackup> make_backup();
  void make_records();
  /// Ends the records of a training that a signal may have stopped.
  void finish_records();
  /// Ends the records of a training that an error ended.
  void fail_records(RunStatus status, const std::string& reason);

  PreparedCtr prepared_;
  CtrTraining& training_;
  const bool is_silent_;
  std::unique_ptr<CtrBackup> backup_;
  std::shared_ptr<RecordRun> recorder_;   // null: this process does not record
  std::shared_ptr<MlflowLogger> mlflow_;  // null: as above
  std::unique_ptr<CtrRecord> record_;     // of both
  CtrMetrics metrics_;
  std::unique_ptr<Printer> printer_;
  std::unique_ptr<StopAgreement> agreement_;
  int64_t next_ = 0;  // step
  int signal_ = 0;
};

}  // namespace lockstep::apps
