#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "lockstep/apps/train_ctr/ctr_options.h"

namespace lockstep::apps {

/// What came out of the options, for the reader of a log.
struct CtrFacts {
  std::string data;
  int64_t num_train = 0;
  int64_t num_test = 0;
  int64_t num_malformed = 0;
  std::string first_malformed;
  std::string strategy;  ///< which, and why
  std::string replicas;  ///< how it runs
  int64_t first_step = 0;
};

/// How good predictions are.
struct CtrScores {
  double auc = 0;
  double log_loss = 0;
};

/// What parameter servers have to tell.
struct CtrServing {
  std::map<uint64_t, int64_t> staleness;  ///< how many updates had how much
  int64_t num_repeated = 0;
  int64_t num_outdated = 0;
  double computing = 0;  ///< seconds of all workers together
  double waiting = 0;
  double idle = 0;
  int64_t num_lost_workers = 0;
};

struct CtrResult {
  int64_t steps = 0;
  int64_t rows = 0;              ///< that were trained on
  double seconds = 0;            ///< that took
  double data_wait_seconds = 0;  ///< of it, for batches; 0 of parameter servers, whose workers wait for them
  CtrScores scores;
  std::optional<CtrScores> best;  ///< that there can be
  std::optional<CtrServing> serving;
};

/// Every value of the run, one a line.
std::string ctr_configuration_text(const CtrOptions& options, const CtrFacts& facts);

/// Such as "step 100/2000  loss 0.4561  51,230 rows/s".
std::string ctr_progress_text(int64_t step, int64_t steps, double loss, double rows_per_second);

std::string ctr_scores_text(const CtrScores& scores);

/// Scores, speed, and what the servers have to tell, with a histogram of the updates' staleness.
std::string ctr_result_text(const CtrResult& result, const CtrFacts& facts);

}  // namespace lockstep::apps
