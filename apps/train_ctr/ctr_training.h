#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/train_ctr/click_data.h"
#include "lockstep/apps/train_ctr/ctr_backup.h"
#include "lockstep/apps/train_ctr/ctr_model.h"
#include "lockstep/apps/train_ctr/ctr_options.h"
#include "lockstep/apps/train_ctr/ctr_report.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/strategies/training_steps.h"

namespace lockstep::apps {

/// The same training under every strategy. What it refers to outlives it.
class CtrTraining {
 public:
  /// Makes the model: of parameter servers, on them. Throws what the strategy does.
  CtrTraining(Strategy& strategy, const CtrOptions& options, const ClickData& data);

  CtrObjects objects() { return {model_, network_optimizer_, table_optimizer_}; }

  struct Listener {
    /// After each step, with its loss over the global batch; returns whether to go on.
    std::function<bool(int64_t step, double loss)> on_step;
  };
  /// Makes the steps from `first` to `end` - 1, or until the listener has enough. Adds to what was done
  /// before. Throws NumbersError for a loss that is no number.
  void train(int64_t first, int64_t end, const Listener& listener);
  /// How good the model is on the rows to test on.
  CtrScores test();
  /// How good one can be there; none where nobody knows.
  std::optional<CtrScores> best_scores() const;

  /// All of the model's, as they are now, on the CPU: of parameter servers read from them.
  std::vector<torch::Tensor> parameters();

  /// What came of it; without scores.
  CtrResult result() const;

 private:
  Strategy& strategy_;
  const ClickData& data_;
  Mirrored<CtrModel> model_;
  Mirrored<CtrOptimizer> network_optimizer_;
  Mirrored<CtrOptimizer> table_optimizer_;
  TrainingSteps<ClickBatch> train_steps_;
  TrainingSteps<ClickBatch> test_steps_;
  CtrResult result_;
};

}  // namespace lockstep::apps
