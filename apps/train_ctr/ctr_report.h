#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/train_ctr/ctr_options.h"

namespace lockstep::apps {

/// Facts that were resolved from the options, for the log.
struct CtrFacts {
  std::string data;
  int64_t num_train = 0;
  int64_t num_test = 0;
  int64_t num_malformed = 0;
  std::string first_malformed;
  std::string strategy;  ///< which one, and why
  std::string replicas;  ///< how the strategy runs
  int64_t lanes = 0;     ///< of ChunkedOrder; 0: the rows to train on are not of Parquet files
  int64_t first_step = 0;
  std::vector<std::string> changed_settings;  ///< since the checkpoint that this process resumes from
};

/// Quality of the predictions.
struct CtrScores {
  double auc = 0;
  double log_loss = 0;
};

/// Statistics of the parameter servers.
struct CtrServing {
  std::map<uint64_t, int64_t> staleness;  ///< number of updates by staleness
  int64_t num_repeated = 0;
  int64_t num_outdated = 0;
  double computing = 0;  ///< seconds, summed over all workers, like the next two fields
  double waiting = 0;
  double idle = 0;
  int64_t num_lost_workers = 0;
};

struct CtrResult {
  int64_t steps = 0;
  int64_t rows = 0;    ///< number of rows trained on
  double seconds = 0;  ///< training time
  /// Part of `seconds` spent waiting for batches; 0 for parameter servers, whose workers do that.
  double data_wait_seconds = 0;
  CtrScores scores;
  std::optional<CtrScores> best;  ///< best possible scores
  std::optional<CtrServing> serving;
};

/// Returns every value of the run, one per line.
std::string ctr_configuration_text(const CtrOptions& options, const CtrFacts& facts);

/// Returns a line such as "step 100/2000  loss 0.4561  51,230 rows/s".
std::string ctr_progress_text(int64_t step, int64_t steps, double loss, double rows_per_second);

std::string ctr_scores_text(const CtrScores& scores);

/// Returns scores, speed and the servers' statistics, with a histogram of the updates' staleness.
std::string ctr_result_text(const CtrResult& result, const CtrFacts& facts);

}  // namespace lockstep::apps
