#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/shared/strategy_choice/strategy_choice.h"

namespace lockstep::apps {

enum class CtrModelKind { kWideDeep, kDlrm };
enum class CtrOptimizerKind { kSgd, kAdagrad, kAdam };
enum class CtrPrecision { kFloat32, kFloat64 };

/// How flags and printed configurations spell them.
std::string ctr_model_name(CtrModelKind model);
std::string ctr_optimizer_name(CtrOptimizerKind optimizer);
std::string ctr_precision_name(CtrPrecision precision);
double default_learning_rate(CtrOptimizerKind optimizer);

/// The model, and what it is trained on and by: what programs that train it share.
struct CtrWork {
  std::string data = "generated";  ///< or the path of click logs
  std::string test_data;           ///< empty: the last rows of `data`
  double test_share = 0.1;         ///< of the rows of `data`, where there is no other file
  int64_t train_rows = 0;          ///< the most rows to train on; 0: all, of generated ones 4 million
  int64_t test_rows = 0;           ///< likewise; of generated ones 100,000
  bool skip_bad = false;

  CtrModelKind model = CtrModelKind::kWideDeep;
  int64_t table_rows = int64_t{1} << 18;
  int64_t embedding_dim = 16;
  int64_t min_frequency = 0;  ///< of the tables' RowFilter
  int64_t steps_to_live = 0;

  int64_t global_batch_size = 1024;
  CtrOptimizerKind optimizer = CtrOptimizerKind::kAdagrad;
  double learning_rate = 0;  ///< 0: default_learning_rate()
  CtrPrecision precision = CtrPrecision::kFloat32;
  uint64_t seed = 1;

  bool operator==(const CtrWork&) const = default;
};

/// What a run of train_ctr is asked for. See ctr_help_text() for the flags' meaning.
struct CtrOptions : StrategyChoice, CtrWork {
  int64_t steps = 2000;
  int64_t test_every = 0;  ///< steps between two tests; 0: at the end only
  int64_t log_every = 100;
  bool quiet = false;

  std::optional<uint64_t> max_staleness;  ///< of parameter_server; none: any
  int slots_per_step = 0;                 ///< of parameter_server with a staleness of 0; 0: one a worker
  bool looks_ahead = true;                ///< of parameter_server

  std::string backup_dir;
  std::string save_every = "10 minutes";

  bool operator==(const CtrOptions&) const = default;
};

}  // namespace lockstep::apps
