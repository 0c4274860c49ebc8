#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/shared/monitoring/metrics_choice.h"
#include "lockstep/apps/shared/planning/layout_policy.h"
#include "lockstep/apps/shared/strategy_choice/strategy_choice.h"

namespace lockstep::apps {

enum class CtrModelKind { kWideDeep, kDlrm };
enum class CtrOptimizerKind { kSgd, kAdagrad, kAdam };
enum class CtrPrecision { kFloat32, kFloat64 };

/// Return the spelling used in flags and printed configurations.
std::string ctr_model_name(CtrModelKind model);
std::string ctr_optimizer_name(CtrOptimizerKind optimizer);
std::string ctr_precision_name(CtrPrecision precision);
double default_learning_rate(CtrOptimizerKind optimizer);

/// Model, data and optimizer; shared by all programs that train the model.
struct CtrWork {
  std::vector<std::string> data{"generated"};  ///< "generated", or files, folders and patterns of click logs
  std::vector<std::string> test_data;          ///< likewise; empty: the last rows of `data`
  double test_share = 0.1;  ///< share of the rows of `data` to test on if test_data is empty
  int64_t train_rows = 0;   ///< maximum number of rows to train on; 0: all, or 4 million generated ones
  int64_t test_rows = 0;    ///< maximum number of rows to test on; 0: all, or 100,000 generated ones
  bool skip_bad = false;
  std::string index_dir;                ///< ClickFileOptions::index_folder
  std::string parquet_memory = "1GiB";  ///< ParquetDatasetOptions::memory_limit

  CtrModelKind model = CtrModelKind::kWideDeep;
  int64_t table_rows = int64_t{1} << 18;
  std::string
      table_memory;  ///< limit of tables that grow, such as "64MiB", or "unlimited"; empty: table_rows
  int64_t embedding_dim = 16;
  int64_t min_frequency = 0;  ///< RowFilter of the tables, like the next field
  int64_t steps_to_live = 0;

  int64_t global_batch_size = 1024;
  CtrOptimizerKind optimizer = CtrOptimizerKind::kAdagrad;
  double learning_rate = 0;  ///< 0: default_learning_rate()
  CtrPrecision precision = CtrPrecision::kFloat32;
  uint64_t seed = 1;

  bool operator==(const CtrWork&) const = default;
};

/// Returns whether the rows are drawn instead of read.
bool is_generated(const CtrWork& work);

/// Options of a train_ctr run. ctr_help_text() explains the flags.
struct CtrOptions : StrategyChoice, CtrWork, LayoutPolicyChoice, MetricsChoice {
  int64_t steps = 2000;
  int64_t test_every = 0;  ///< steps between tests; 0: only at the end
  int64_t log_every = 100;
  bool quiet = false;

  std::optional<uint64_t> max_staleness;  ///< for parameter_server; none: any
  std::string table_disk;                 ///< ServeParametersOptions::table_disk
  int slots_per_step = 0;                 ///< for parameter_server with a staleness of 0; 0: one per worker
  bool looks_ahead = true;                ///< for parameter_server

  std::string run_dir;     ///< folder for the record of the run; empty: none
  std::string backup_dir;  ///< folder for saved training states; empty: none
  std::string save_every = "10 minutes";
  std::string resume = "auto";  ///< auto, never, or a path: BackupOptions::resume
  int retryable_exit_code = 0;  ///< of failures that another start may mend; 0: none

  bool operator==(const CtrOptions&) const = default;
};

}  // namespace lockstep::apps
