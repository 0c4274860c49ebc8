#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/train_ctr/click_data.h"
#include "lockstep/apps/train_ctr/ctr_backup.h"
#include "lockstep/apps/train_ctr/ctr_input.h"
#include "lockstep/apps/train_ctr/ctr_model.h"
#include "lockstep/apps/train_ctr/ctr_options.h"
#include "lockstep/apps/train_ctr/ctr_report.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"
#include "lockstep/strategies/training_steps.h"

namespace lockstep::apps {

/// Runs the same training under any strategy. The constructor's arguments must outlive it.
class CtrTraining {
 public:
  /// Creates the model; under parameter servers, on the servers. Throws what the strategy throws.
  CtrTraining(Strategy& strategy, const CtrOptions& options, const ClickData& data);

  CtrObjects objects() { return {model_, network_optimizer_, table_optimizer_}; }

  struct Listener {
    /// Called after each step with its loss over the global batch. Returns whether to continue.
    std::function<bool(int64_t step, double loss)> on_step;
  };
  /// Runs the steps `first` to `end` - 1, or fewer if the listener stops. The result accumulates over calls.
  /// Throws NumbersError if a loss is not finite.
  void train(int64_t first, int64_t end, const Listener& listener);
  /// Returns the model's scores on the test rows.
  CtrScores test();
  /// Returns the best possible scores on the test rows; none if they are unknown.
  std::optional<CtrScores> best_scores() const;

  /// Returns all current parameters on the CPU; under parameter servers, reads them from the servers.
  std::vector<torch::Tensor> parameters();

  /// Returns the result so far, without scores. Copies the servers' statistics: call it seldom.
  CtrResult result() const;
  /// Return some of the result's values, in no time. worker_times() is null without parameter servers.
  int64_t rows() const { return result_.rows; }
  const WorkerTimes* worker_times() const;
  double data_wait_seconds() const { return train_steps_.data_wait_seconds(); }
  /// Returns the times of the batches that this process has made to train on. None without --profile-input.
  std::optional<InputProfile> input_profile() const;

 private:
  Strategy& strategy_;
  const ClickData& data_;
  std::shared_ptr<InputTimes> input_times_;  // null: not measured
  std::optional<ReadTotals> reads_;          // of train() calls; none unless the rows are of Parquet files
  Mirrored<CtrModel> model_;
  Mirrored<CtrOptimizer> network_optimizer_;
  Mirrored<CtrOptimizer> table_optimizer_;
  TrainingSteps<ClickBatch> train_steps_;
  TrainingSteps<ClickBatch> test_steps_;
  CtrResult result_;
};

}  // namespace lockstep::apps
