#include "lockstep/apps/train_ctr/ctr_command_line.h"

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/number_argument.h"
#include "lockstep/apps/shared/command_line/retryable_exit_code.h"
#include "lockstep/apps/shared/monitoring/metrics_flags.h"
#include "lockstep/apps/shared/planning/layout_policy.h"
#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"
#include "lockstep/apps/train_ctr/ctr_flags.h"
#include "lockstep/apps/train_ctr/ctr_table_memory.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/save_interval.h"

namespace lockstep::apps {
namespace {

constexpr IntegerRange kStepCounts{.least = 1, .most = 1'000'000'000};
constexpr IntegerRange kStepCountsOrNone{.least = 0, .most = 1'000'000'000};
constexpr IntegerRange kSlots{.least = 1, .most = 65'536};

void read_servers(const Arguments& given, CtrOptions& options) {
  const bool may_have_servers = options.strategy == "parameter_server" || options.strategy == "auto";
  for (const std::string flag : {"max-staleness", "slots-per-step", "no-look-ahead"}) {
    if (given.has(flag) && !may_have_servers)
      given.refuse_together(
          flag, "expected it with --strategy parameter_server only, but got --strategy " + options.strategy);
  }
  if (given.has("table-memory")) {
    options.table_memory = given.text("table-memory", "");
    if (options.table_memory.empty()) given.refuse("table-memory", "a size such as 64MiB, or unlimited");
    if (options.strategy != "parameter_server")
      given.refuse_together(
          "table-memory",
          "expected it with --strategy parameter_server only, but got --strategy " + options.strategy);
    check_table_memory(options);
  }
  options.table_disk = given.text("table-disk", "");
  if (given.has("table-disk")) {
    if (options.table_disk.empty()) given.refuse("table-disk", "a folder");
    if (ctr_table_memory(options).embeddings == 0)
      given.refuse_together("table-disk",
                            "expected a size as --table-memory, but got " + options.table_memory);
  }
  if (given.has("max-staleness"))
    options.max_staleness = static_cast<uint64_t>(given.integer("max-staleness", kStepCountsOrNone, 0));
  if (given.has("slots-per-step") && options.max_staleness != 0)
    given.refuse_together("slots-per-step", "expected --max-staleness 0 with it");
  options.slots_per_step = static_cast<int>(given.integer("slots-per-step", kSlots, options.slots_per_step));
  options.looks_ahead = !given.is_on("no-look-ahead");
}

void read_backup(const Arguments& given, CtrOptions& options) {
  options.backup_dir = given.text("backup-dir", "");
  if (given.has("backup-dir") && options.backup_dir.empty()) given.refuse("backup-dir", "a folder");
  options.resume = given.text("resume", options.resume);
  if (options.resume.empty()) given.refuse("resume", "auto, never or a path");
  if (options.strategy == "parameter_server" && options.resume != "auto")
    given.refuse_together("resume",
                          "expected auto with --strategy parameter_server, whose servers resume from "
                          "--backup-dir; to start over, name another folder there");
  options.save_every = given.text("save-every", options.save_every);
  try {
    if (SaveInterval::parse(options.save_every).unit != SaveUnit::kEpochs) return;
  } catch (const InvalidArgument&) {  // refused below
  }
  given.refuse("save-every", "N steps or N minutes, N being positive");
}

void read_ctr_run(const Arguments& given, CtrOptions& options) {
  options.steps = given.integer("steps", kStepCounts, options.steps);
  options.test_every = given.integer("test-every", kStepCountsOrNone, options.test_every);
  options.log_every = given.integer("log-every", kStepCounts, options.log_every);
  options.run_dir = given.text("run-dir", "");
  if (given.has("run-dir") && options.run_dir.empty()) given.refuse("run-dir", "a folder");
  read_metrics(given, options);
  options.quiet = given.is_on("quiet");
  options.retryable_exit_code = read_retryable_exit_code(given);
}

}  // namespace

CtrCommandLine parse_ctr_command_line(const std::vector<std::string>& arguments,
                                      const std::vector<std::string>& strategies) {
  const FlagTable table = ctr_flags(strategies);
  Arguments given = parse_arguments(table, arguments);
  CtrCommandLine line{.action = requested_action(given)};
  if (line.action != Action::kTrain) return line;
  complete_arguments(given, table);
  read_strategy(given, strategies, line.options);
  read_ctr_work(given, line.options);
  read_servers(given, line.options);
  read_layout_policy(given, /*layout_flags=*/{}, line.options);
  read_ctr_run(given, line.options);
  read_backup(given, line.options);
  line.origins = given.origins();
  return line;
}

std::string ctr_help_text(const std::vector<std::string>& strategies, const std::string& program) {
  return help_text(ctr_flags(strategies), program);
}

}  // namespace lockstep::apps
