#include "lockstep/apps/train_ctr/ctr_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/apps/shared/command_line/data_place.h"
#include "lockstep/apps/shared/command_line/number_argument.h"
#include "lockstep/apps/shared/command_line/retryable_exit_code.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/monitoring/metrics_flags.h"
#include "lockstep/apps/shared/planning/layout_policy.h"
#include "lockstep/apps/shared/planning/quantity.h"
#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"

namespace lockstep::apps {
namespace {

constexpr IntegerRange kRowCounts{.least = 1, .most = 1'000'000'000'000};
constexpr IntegerRange kBatchSizes{.least = 1, .most = 1'000'000'000};
constexpr IntegerRange kUpdateCounts{.least = 0, .most = 1'000'000'000};
constexpr IntegerRange kTableRows{.least = 1, .most = int64_t{1} << 40};
constexpr IntegerRange kEmbeddingDims{.least = 1, .most = 4096};

constexpr const char* kCtrExamples =
    "\nExamples:\n"
    "  train_ctr                                                # on generated clicks\n"
    "  train_ctr --data train.txt --skip-bad --model dlrm       # on Criteo's, tests on the last tenth\n"
    "  train_ctr --data 'logs/day_*.gz' --test-data logs/test   # on several files, and tests on a folder\n"
    "  train_ctr --data 'clicks/*.parquet'                      # on Parquet files\n"
    "  train_ctr --strategy mirrored --replicas 2 --optimizer adam\n"
    "  train_ctr --run-dir runs/a --test-every 500              # recorded; open runs/a/report.html\n"
    "  train_ctr --config runs/a/config.json --run-dir runs/b --seed 2\n"
    "                                                           # the same with another seed\n"
    "  train_ctr --backup-dir b --save-every '500 steps'        # run it again to resume it\n"
    "  lockstep_launch_local --ps 2 --workers 2 train_ctr --strategy parameter_server\n"
    "  lockstep_launch_local --ps 2 --workers 2 train_ctr --strategy parameter_server \\\n"
    "    --max-staleness 0                                      # all workers compute each step together\n"
    "  lockstep_launch_local --ps 2 --workers 2 train_ctr --strategy parameter_server \\\n"
    "    --table-memory 64MiB --min-frequency 2                 # tables that grow\n"
    "\nExit codes: 0 success, 1 any other error, 2 usage, 3 data, 4 checkpoint or folder, 5 lost\n"
    "connection to another process, 6 loss not finite, 7 no memory, disk space, thread or device,\n"
    "130 stopped by SIGINT, 143 stopped by SIGTERM.\n";

template <typename Value>
std::string default_text(Value value) {
  return fmt::format("{}", value);
}

std::vector<Flag> ctr_run_flags() {
  const CtrOptions defaults;
  return {
      {"Run", "steps", "N", "Number of steps; the data is repeated as often as that takes",
       default_text(defaults.steps)},
      {"Run", "test-every", "N", "Test after every N steps as well as at the end; 0: only at the end",
       default_text(defaults.test_every), FlagRole::kOperation},
      {"Run", "log-every", "N",
       "Print the loss after every N steps, and record it in --run-dir and --mlflow-dir",
       default_text(defaults.log_every), FlagRole::kOperation},
      {"Run", "config", "FILE",
       "Read values from a configuration file, such as the config.json of an earlier run, to repeat that "
       "run. Flags override it",
       "", FlagRole::kAction},
      {"Run", "run-dir", "DIR",
       "Record the run in a new folder: config.json, metrics, TensorBoard files and report.html. With "
       "parameter servers, only the chief writes there",
       "", FlagRole::kProcess},
      {"Run", "backup-dir", "DIR",
       "Save the training to this folder at regular intervals. After a crash or a signal, the same command "
       "resumes it. Parameter servers write there too, so all processes must see the folder",
       "", FlagRole::kProcess},
      {"Run", "save-every", "TIME", "Interval between two saves, such as '500 steps' or '10 minutes'",
       defaults.save_every, FlagRole::kOperation},
      {"Run", "resume", "FROM",
       "auto (resume from the newest complete checkpoint in --backup-dir, if there is one), never, or the "
       "path of a checkpoint or of a folder with checkpoints. Parameter servers take auto only",
       defaults.resume, FlagRole::kProcess},
      retryable_exit_code_flag(),
      {"Run", "quiet", "", "Print errors only", "", FlagRole::kOperation},
  };
}

std::vector<Flag> ctr_check_flags() {
  return {layout_policy_flag(/*chosen=*/""), device_memory_flag()};
}

std::vector<Flag> ctr_server_flags() {
  return {
      {"Parameter servers", "table-memory", "SIZE",
       "Instead of --table-rows: make rows as their categories occur, in this much memory of all servers "
       "together, such as 64MiB, or unlimited. A new row replaces the one unused for longest if there is no "
       "memory left. See --min-frequency and --steps-to-live"},
      {"Parameter servers", "table-disk", "FOLDER",
       "With --table-memory: keep rows for which it has no room in this folder on each server's local disk "
       "instead of replacing others. Each server empties a folder of its own there when it starts",
       "", FlagRole::kProcess},
      {"Parameter servers", "max-staleness", "N",
       "How many updates of other workers may happen between reading the parameters for a step and applying "
       "its gradients. 0: all workers compute each step together (default: any number)"},
      {"Parameter servers", "slots-per-step", "N",
       "With --max-staleness 0: number of parts that each batch is split into. Each part is computed by one "
       "worker (default: the number of workers in the cluster)"},
      {"Parameter servers", "no-look-ahead", "",
       "Fetch the batch and the parameters of a worker's next step after its current step instead of "
       "during it",
       "", FlagRole::kOperation},
  };
}

}  // namespace

std::vector<Flag> ctr_data_flags() {
  const CtrWork defaults;
  return {
      {"Data", "data", "LIST",
       "generated (random rows whose best possible score is known), or click logs to train on: files, "
       "folders and patterns such as 'day_*.gz', separated by commas. Rows are in Criteo's format, a label, "
       "13 integers and 26 categories: in lines, separated by tabs, and the files may be compressed with "
       "gzip or zstd; or in Parquet files, with the columns label, I1 to I13 and C1 to C26, which may also "
       "be "
       "in an object store: s3://bucket/clicks/day_*.parquet",
       defaults.data.front()},
      {"Data", "test-data", "LIST", "Click logs to test on, likewise (default: the last rows of --data)"},
      {"Data", "test-share", "X", "Without --test-data: share of the rows of --data to test on",
       default_text(defaults.test_share)},
      {"Data", "train-rows", "N", "Train on at most N rows (default: all; 4,000,000 if they are generated)"},
      {"Data", "test-rows", "N", "Test on at most N rows (default: all; 100,000 if they are generated)"},
      {"Data", "skip-bad", "",
       "Skip malformed lines, and row groups of Parquet files that cannot be read, and print how many rows "
       "that are"},
      {"Data", "parquet-memory", "SIZE",
       "Parquet files: keep at most so much of their decoded row groups in memory, such as 512MiB. The order "
       "of the rows depends on it, so resume with the same",
       defaults.parquet_memory},
      {"Data", "index-dir", "DIR",
       "Folder for files that are made once for each file of click logs: an index of its rows if it is "
       "large, "
       "and a decompressed copy if it is compressed, so make sure that there is room (default: the folder "
       ".lockstep next to the click logs, or if that cannot be written, ~/.cache/lockstep/clicks)",
       "", FlagRole::kProcess},
  };
}

std::vector<Flag> ctr_model_flags() {
  const CtrWork defaults;
  return {
      {"Model", "model", "NAME",
       "wide_deep or dlrm: a linear model together with a network on embeddings, or a network on products of "
       "embeddings",
       ctr_model_name(defaults.model)},
      {"Model", "table-rows", "N",
       "Rows of the embedding table. All 26 columns share it: each category is hashed to a row. wide_deep "
       "also has a table of weights with as many rows",
       default_text(defaults.table_rows)},
      {"Model", "embedding-dim", "N", "Number of values in each embedding",
       default_text(defaults.embedding_dim)},
      {"Model", "min-frequency", "N",
       "Parameter servers: train a row of the tables only from its Nth update on"},
      {"Model", "steps-to-live", "N",
       "Parameter servers: reset a row of the tables that no batch has used for N steps"},
  };
}

std::vector<Flag> ctr_training_flags() {
  const CtrWork defaults;
  return {
      {"Training", "global-batch-size", "N",
       "Rows in a step, over all replicas. If workers of parameter servers step independently: rows in each "
       "worker's step",
       default_text(defaults.global_batch_size)},
      {"Training", "optimizer", "NAME",
       "sgd, adagrad or adam. A step updates only those rows of the tables that its batch uses",
       ctr_optimizer_name(defaults.optimizer)},
      {"Training", "learning-rate", "X",
       fmt::format("Learning rate (default: {} for sgd, {} for adagrad, {} for adam)",
                   default_learning_rate(CtrOptimizerKind::kSgd),
                   default_learning_rate(CtrOptimizerKind::kAdagrad),
                   default_learning_rate(CtrOptimizerKind::kAdam))},
      {"Training", "precision", "NAME", "float32 or float64", ctr_precision_name(defaults.precision)},
      {"Training", "seed", "N",
       "Seed of the initial values, of the order of the rows, and of the rows themselves if they are "
       "generated. Equal seeds give equal results",
       default_text(defaults.seed)},
  };
}

FlagTable ctr_flags(const std::vector<std::string>& strategies) {
  FlagTable table{
      .program = "train_ctr",
      .summary =
          "Trains a model that predicts clicks, with large embedding tables. It runs under any strategy.",
      .after = kCtrExamples,
      .alternatives = {{"devices", "replicas"},
                       {"replicas-per-device", "replicas"},
                       {"test-data", "test-share"},
                       {"table-memory", "table-rows"}},
      .dependents = {{"test-data", "data"},
                     {"test-share", "data"},
                     {"skip-bad", "data"},
                     {"parquet-memory", "data"},
                     {"learning-rate", "optimizer"},
                     {"min-frequency", "strategy"},
                     {"steps-to-live", "strategy"},
                     {"table-memory", "strategy"},
                     {"max-staleness", "strategy"},
                     {"no-look-ahead", "strategy"},
                     {"slots-per-step", "max-staleness"}},
      .needs = {{"table-disk", {"table-memory"}},
                {"metrics-address", {"metrics-port"}},
                {"save-every", {"backup-dir"}},
                {"resume", {"backup-dir"}}}};
  for (auto flags :
       {ctr_data_flags(), ctr_model_flags(), ctr_training_flags(), ctr_check_flags(), ctr_run_flags(),
        metrics_flags(), strategy_flags(strategies), ctr_server_flags(), common_flags()})
    for (auto& flag : flags) table.flags.push_back(std::move(flag));
  return table;
}

namespace {

void read_click_data(const Arguments& given, CtrWork& work) {
  const auto places = [&](const std::string& flag, const std::string& expected) {
    auto pieces = given.list(flag);
    const bool has_hole =
        std::any_of(pieces.begin(), pieces.end(), [](const std::string& piece) { return piece.empty(); });
    if (has_hole) given.refuse(flag, expected);
    for (const std::string& piece : pieces) refuse_credentials(flag, piece);
    return pieces;
  };
  if (given.has("data")) work.data = places("data", "generated, or paths separated by commas");
  if (work.data.size() > 1 && std::count(work.data.begin(), work.data.end(), "generated") > 0)
    given.refuse("data", "generated alone, or paths separated by commas");
  if (given.has("test-data")) work.test_data = places("test-data", "paths separated by commas");
  for (const std::string flag : {"test-data", "test-share", "skip-bad", "index-dir", "parquet-memory"}) {
    if (given.has(flag) && is_generated(work) && given.text(flag) != "false")
      given.refuse_together(flag, "expected it with a file as --data, but got generated");
  }
  work.test_share = given.factor("test-share", work.test_share);
  work.train_rows = given.integer("train-rows", kRowCounts, work.train_rows);
  work.test_rows = given.integer("test-rows", kRowCounts, work.test_rows);
  work.skip_bad = given.is_on("skip-bad");
  work.index_dir = given.text("index-dir", work.index_dir);
  work.parquet_memory = given.text("parquet-memory", work.parquet_memory);
  if (given.has("parquet-memory")) parse_bytes("parquet-memory", work.parquet_memory);
  if (given.has("index-dir") && work.index_dir.empty()) given.refuse("index-dir", "a folder");
}

}  // namespace

void read_ctr_work(const Arguments& given, CtrWork& work) {
  read_click_data(given, work);
  work.model = given.choice<CtrModelKind>(
      "model", {{"wide_deep", CtrModelKind::kWideDeep}, {"dlrm", CtrModelKind::kDlrm}}, work.model);
  work.table_rows = given.integer("table-rows", kTableRows, work.table_rows);
  work.embedding_dim = given.integer("embedding-dim", kEmbeddingDims, work.embedding_dim);
  work.min_frequency = given.integer("min-frequency", kUpdateCounts, work.min_frequency);
  work.steps_to_live = given.integer("steps-to-live", kUpdateCounts, work.steps_to_live);
  work.global_batch_size = given.integer("global-batch-size", kBatchSizes, work.global_batch_size);
  work.optimizer = given.choice<CtrOptimizerKind>("optimizer",
                                                  {{"sgd", CtrOptimizerKind::kSgd},
                                                   {"adagrad", CtrOptimizerKind::kAdagrad},
                                                   {"adam", CtrOptimizerKind::kAdam}},
                                                  work.optimizer);
  work.learning_rate = given.positive("learning-rate", default_learning_rate(work.optimizer));
  work.precision = given.choice<CtrPrecision>(
      "precision", {{"float32", CtrPrecision::kFloat32}, {"float64", CtrPrecision::kFloat64}},
      work.precision);
  work.seed = given.seed("seed", work.seed);
}

}  // namespace lockstep::apps
