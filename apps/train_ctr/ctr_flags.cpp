#include "lockstep/apps/train_ctr/ctr_flags.h"

#include <fmt/format.h>

#include <utility>

#include "lockstep/apps/shared/command_line/number_argument.h"
#include "lockstep/apps/shared/monitoring/metrics_flags.h"
#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/save_interval.h"

namespace lockstep::apps {
namespace {

constexpr IntegerRange kCounts{.least = 1, .most = 1'000'000'000};
constexpr IntegerRange kCountsOrNone{.least = 0, .most = 1'000'000'000};
constexpr IntegerRange kRows{.least = 1, .most = int64_t{1} << 40};
constexpr IntegerRange kColumns{.least = 1, .most = 4096};
constexpr IntegerRange kSlots{.least = 1, .most = 65'536};

constexpr const char* kExamples =
    "\nExamples:\n"
    "  train_ctr                                                # clicks that it draws itself\n"
    "  train_ctr --data train.txt --skip-bad --model dlrm       # Criteo's, the last tenth for the test\n"
    "  train_ctr --strategy mirrored --replicas 2 --optimizer adam\n"
    "  scripts/launch_local.sh --ps 2 --workers 2 build/release/bin/train_ctr --strategy parameter_server\n"
    "  scripts/launch_local.sh --ps 2 --workers 2 build/release/bin/train_ctr --strategy parameter_server "
    "\\\n"
    "    --max-staleness 0                                      # all workers make each step together\n"
    "\nExit codes: 0 done, 1 any other error, 2 usage, 3 data, 4 checkpoint, 5 processes that lost each "
    "other,\n"
    "6 loss not finite, 7 out of memory, threads or a GPU, 130 and 143 stopped by SIGINT or SIGTERM.\n";

template <typename Value>
std::string number(Value value) {
  return fmt::format("{}", value);
}

std::vector<Flag> ctr_run_flags() {
  const CtrOptions defaults;
  return {
      {"Run", "steps", "N", "Steps, over as many epochs as it takes", number(defaults.steps)},
      {"Run", "test-every", "N", "Steps between two tests; 0: one at the end only",
       number(defaults.test_every)},
      {"Run", "log-every", "N", "Steps between two lines that tell the loss", number(defaults.log_every)},
      {"Run", "backup-dir", "DIR",
       "Save the training in a folder as it goes, so that the same command goes on where it ended. Parameter "
       "servers write there, too: it is a folder that all processes see"},
      {"Run", "save-every", "TIME", "Between two checkpoints there: 500 steps, 10 minutes",
       defaults.save_every},
      {"Run", "quiet", "", "Print errors only"},
  };
}

std::vector<Flag> ctr_server_flags() {
  return {
      {"Parameter servers", "max-staleness", "N",
       "How many steps of others may come between the values that a step is computed with and the step "
       "itself; 0: all workers make each step together (default: any number)"},
      {"Parameter servers", "slots-per-step", "N",
       "With --max-staleness 0: parts of each step's batch, for as many workers (default: one for each "
       "worker "
       "of the cluster)"},
      {"Parameter servers", "no-look-ahead", "",
       "Read a step's batch and values once the worker's last step has arrived, instead of while it computes "
       "that"},
  };
}

FlagTable ctr_flags(const std::vector<std::string>& strategies) {
  FlagTable table{
      .program = "train_ctr",
      .summary = "Trains a model of clicks with large embedding tables, under any strategy.",
      .after = kExamples,
      .alternatives = {
          {"devices", "replicas"}, {"replicas-per-device", "replicas"}, {"test-data", "test-share"}}};
  for (auto flags : {ctr_data_flags(), ctr_model_flags(), ctr_training_flags(), ctr_run_flags(),
                     metrics_flags(), strategy_flags(strategies), ctr_server_flags(), common_flags()})
    for (auto& flag : flags) table.flags.push_back(std::move(flag));
  return table;
}

void read_servers(const Arguments& given, CtrOptions& options) {
  const bool may_have_servers = options.strategy == "parameter_server" || options.strategy == "auto";
  for (const std::string flag : {"max-staleness", "slots-per-step", "no-look-ahead"}) {
    if (given.has(flag) && !may_have_servers)
      given.refuse_beside(
          flag, "expected it with --strategy parameter_server only, but got --strategy " + options.strategy);
  }
  if (given.has("max-staleness"))
    options.max_staleness = static_cast<uint64_t>(given.integer("max-staleness", kCountsOrNone, 0));
  if (given.has("slots-per-step") && options.max_staleness != 0)
    given.refuse_beside("slots-per-step", "expected --max-staleness 0 beside it");
  options.slots_per_step = static_cast<int>(given.integer("slots-per-step", kSlots, options.slots_per_step));
  options.looks_ahead = !given.is_on("no-look-ahead");
}

void read_run(const Arguments& given, CtrOptions& options) {
  options.steps = given.integer("steps", kCounts, options.steps);
  options.test_every = given.integer("test-every", kCountsOrNone, options.test_every);
  options.log_every = given.integer("log-every", kCounts, options.log_every);
  read_metrics(given, options);
  options.quiet = given.is_on("quiet");
  options.backup_dir = given.text("backup-dir", "");
  if (given.has("backup-dir") && options.backup_dir.empty()) given.refuse("backup-dir", "a folder");
  given.require_beside("save-every", "backup-dir");
  options.save_every = given.text("save-every", options.save_every);
  try {
    if (SaveInterval::parse(options.save_every).unit != SaveUnit::kEpochs) return;
  } catch (const InvalidArgument&) {  // refused below
  }
  given.refuse("save-every", "N steps or N minutes, N being positive");
}

}  // namespace

std::vector<Flag> ctr_data_flags() {
  const CtrWork defaults;
  return {
      {"Data", "data", "PATH",
       "generated, or a file of click logs in Criteo's format: a label, 13 integers and 26 categories, "
       "separated by tabs",
       defaults.data},
      {"Data", "test-data", "PATH", "Such a file to test on (default: the last rows of --data)"},
      {"Data", "test-share", "X", "Of the rows of --data, where there is no --test-data",
       number(defaults.test_share)},
      {"Data", "train-rows", "N", "Train on N rows at most (default: all; 4,000,000 generated ones)"},
      {"Data", "test-rows", "N", "Test on N rows at most (default: all; 100,000 generated ones)"},
      {"Data", "skip-bad", "", "Leave out malformed rows, and say how many"},
  };
}

std::vector<Flag> ctr_model_flags() {
  const CtrWork defaults;
  return {
      {"Model", "model", "NAME", "wide_deep or dlrm", ctr_model_name(defaults.model)},
      {"Model", "table-rows", "N",
       "Rows of the embedding table that the ids of all columns are hashed to, and of wide_deep's table of "
       "weights",
       number(defaults.table_rows)},
      {"Model", "embedding-dim", "N", "Columns of the embedding table", number(defaults.embedding_dim)},
      {"Model", "min-frequency", "N",
       "Parameter servers: train a row of the tables from its Nth update on, and leave it as it began "
       "before"},
      {"Model", "steps-to-live", "N",
       "Parameter servers: let a row begin anew that no batch had for N steps"},
  };
}

std::vector<Flag> ctr_training_flags() {
  const CtrWork defaults;
  return {
      {"Training", "global-batch-size", "N",
       "Rows of a step over all replicas; of a worker's step, where workers step by themselves",
       number(defaults.global_batch_size)},
      {"Training", "optimizer", "NAME", "sgd, adagrad or adam: of a table it steps the rows that a batch has",
       ctr_optimizer_name(defaults.optimizer)},
      {"Training", "learning-rate", "X",
       fmt::format("Learning rate (default: {} for sgd, {} for adagrad, {} for adam)",
                   default_learning_rate(CtrOptimizerKind::kSgd),
                   default_learning_rate(CtrOptimizerKind::kAdagrad),
                   default_learning_rate(CtrOptimizerKind::kAdam))},
      {"Training", "precision", "NAME", "float32 or float64", ctr_precision_name(defaults.precision)},
      {"Training", "seed", "N", "Seed of everything random", number(defaults.seed)},
  };
}

void read_ctr_work(const Arguments& given, CtrWork& work) {
  work.data = given.text("data", work.data);
  if (work.data.empty()) given.refuse("data", "generated or a path");
  work.test_data = given.text("test-data", work.test_data);
  if (given.has("test-data") && work.test_data.empty()) given.refuse("test-data", "a path");
  for (const std::string flag : {"test-data", "test-share", "skip-bad"}) {
    if (given.has(flag) && work.data == "generated" && given.text(flag) != "false")
      given.refuse_beside(flag, "expected it with a file as --data, but got generated");
  }
  work.test_share = given.factor("test-share", work.test_share);
  work.train_rows = given.integer("train-rows", kCounts, work.train_rows);
  work.test_rows = given.integer("test-rows", kCounts, work.test_rows);
  work.skip_bad = given.is_on("skip-bad");
  work.model = given.choice<CtrModelKind>(
      "model", {{"wide_deep", CtrModelKind::kWideDeep}, {"dlrm", CtrModelKind::kDlrm}}, work.model);
  work.table_rows = given.integer("table-rows", kRows, work.table_rows);
  work.embedding_dim = given.integer("embedding-dim", kColumns, work.embedding_dim);
  work.min_frequency = given.integer("min-frequency", kCountsOrNone, work.min_frequency);
  work.steps_to_live = given.integer("steps-to-live", kCountsOrNone, work.steps_to_live);
  work.global_batch_size = given.integer("global-batch-size", kCounts, work.global_batch_size);
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

CtrCommandLine parse_ctr_command_line(const std::vector<std::string>& arguments,
                                      const std::vector<std::string>& strategies) {
  const FlagTable table = ctr_flags(strategies);
  const Arguments given = parse_arguments(table, arguments);
  CtrCommandLine line;
  if (given.is_on("help")) {
    line.action = CtrAction::kHelp;
  } else if (given.is_on("version")) {
    line.action = CtrAction::kVersion;
  } else if (given.is_on("list-devices")) {
    line.action = CtrAction::kListDevices;
  } else {
    given.check_alternatives(table);
    read_strategy(given, strategies, line.options);
    read_ctr_work(given, line.options);
    read_servers(given, line.options);
    read_run(given, line.options);
  }
  return line;
}

std::string ctr_help_text(const std::vector<std::string>& strategies) {
  return help_text(ctr_flags(strategies));
}

}  // namespace lockstep::apps
