#include "lockstep/apps/shared/session/run_flags.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "lockstep/apps/shared/command_line/configuration_row.h"
#include "lockstep/apps/shared/command_line/retryable_exit_code.h"
#include "lockstep/apps/shared/monitoring/metrics_flags.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/save_interval.h"

namespace lockstep::apps {
namespace {

using settings::count;
using settings::text;
using settings::where;

constexpr IntegerRange kRunCounts{.least = 1, .most = 1'000'000'000};
constexpr IntegerRange kRunCountsOrNone{.least = 0, .most = 1'000'000'000};
// A profile is kept in memory: about 100 kB a step.
constexpr IntegerRange kProfiledSteps{.least = 1, .most = 1000};

std::string not_finite_name(NotFiniteAction action) {
  switch (action) {
    case NotFiniteAction::kStop:
      return "stop";
    case NotFiniteAction::kSkip:
      return "skip";
    case NotFiniteAction::kRollBack:
      break;
  }
  return "roll_back";
}

void read_records(const Arguments& given, RunChoice& choice) {
  choice.run_dir = given.text("run-dir", "");
  if (given.has("run-dir") && choice.run_dir.empty()) given.refuse("run-dir", "a folder");
  choice.log_every = given.integer("log-every", kRunCounts, choice.log_every);
  choice.profile = given.integer("profile", kProfiledSteps, choice.profile);
  choice.fast_dev_run = given.is_on("fast-dev-run");
  read_metrics(given, choice);
  choice.quiet = given.is_on("quiet");
}

void read_checks_and_backup(const Arguments& given, RunChoice& choice) {
  choice.check_replicas = given.integer("check-replicas", kRunCountsOrNone, choice.check_replicas);
  choice.on_not_finite = given.choice<NotFiniteAction>("on-not-finite",
                                                       {{"stop", NotFiniteAction::kStop},
                                                        {"skip", NotFiniteAction::kSkip},
                                                        {"roll_back", NotFiniteAction::kRollBack}},
                                                       choice.on_not_finite);
  choice.backup_dir = given.text("backup-dir", "");
  if (given.has("backup-dir") && choice.backup_dir.empty()) given.refuse("backup-dir", "a folder");
  choice.save_every = given.text("save-every", choice.save_every);
  try {
    SaveInterval::parse(choice.save_every);
  } catch (const InvalidArgument&) {
    given.refuse("save-every", "epoch, N epochs, N steps or N minutes, N being positive");
  }
  choice.shard_backup = given.is_on("shard-backup");
  choice.resume = given.text("resume", choice.resume);
  if (choice.resume.empty()) given.refuse("resume", "auto, never or a path");
  choice.retryable_exit_code = read_retryable_exit_code(given);
}

}  // namespace

std::vector<Flag> run_flags() {
  const RunChoice defaults;
  std::vector<Flag> flags = {
      {"Run", "config", "FILE",
       "Read flags from a configuration file. The config.json in a run's folder repeats that run. "
       "Flags on the command line override the file",
       "", FlagRole::kAction},
      {"Run", "run-dir", "DIR",
       "Record the run in a new folder: config.json, metrics, TensorBoard files, checkpoints and "
       "report.html",
       "", FlagRole::kProcess},
      {"Run", "log-every", "N", "Record metrics in --run-dir and --mlflow-dir every N steps",
       fmt::format("{}", defaults.log_every), FlagRole::kOperation},
      {"Run", "profile", "N", "Record a profile of N steps in --run-dir (default: none)", "",
       FlagRole::kOperation},
      {"Run", "fast-dev-run", "",
       "Try everything quickly: 5 steps, a test on as many examples, and no files but those of --run-dir", "",
       FlagRole::kAction},
      {"Run", "backup-dir", "DIR",
       "Save the training in a folder while it runs. After a signal, a crash or a lost machine, the "
       "same command resumes at the exact step. Worker 0 writes the folder",
       "", FlagRole::kProcess},
      {"Run", "save-every", "TIME",
       "How often to save to --backup-dir: epoch, 3 epochs, 500 steps or 10 minutes, for example",
       defaults.save_every, FlagRole::kOperation},
      {"Run", "shard-backup", "",
       "Let each of several workers write a part of a checkpoint. --backup-dir must be on a file "
       "system that all workers share",
       "", FlagRole::kOperation},
      {"Run", "resume", "FROM",
       "auto resumes from the newest complete checkpoint in --backup-dir, if there is one. never "
       "starts over. Or the path of a checkpoint, or of a folder of checkpoints",
       defaults.resume, FlagRole::kProcess},
      {"Run", "check-replicas", "N",
       "Compare the parameters and optimizer states of all replicas bit by bit every N steps; 0 never "
       "does",
       fmt::format("{}", defaults.check_replicas), FlagRole::kOperation},
      {"Run", "on-not-finite", "ACTION",
       "What to do if a loss, a parameter or an optimizer state becomes NaN or infinite. stop ends "
       "with an error. skip checks after every step and undoes the step. roll_back checks every 100 "
       "steps and at the end of the epoch, and undoes all steps since the last check",
       not_finite_name(defaults.on_not_finite)},
      retryable_exit_code_flag(),
      {"Run", "quiet", "", "Print errors only", "", FlagRole::kOperation},
  };
  for (auto& flag : metrics_flags()) flags.push_back(std::move(flag));
  return flags;
}

std::vector<FlagNeed> run_needs() {
  return {{"log-every", {"run-dir", "mlflow-dir"}},
          {"metrics-address", {"metrics-port"}},
          {"profile", {"run-dir"}},
          {"save-every", {"backup-dir"}},
          {"shard-backup", {"backup-dir"}},
          {"resume", {"backup-dir"}}};
}

void read_run(const Arguments& given, RunChoice& choice) {
  read_records(given, choice);
  read_checks_and_backup(given, choice);
}

settings::NamedValues run_values(const RunChoice& choice) {
  const bool is_recorded = !choice.run_dir.empty() || !choice.mlflow_dir.empty();
  const bool is_saved = !choice.backup_dir.empty();
  settings::NamedValues values = {{"run-dir", text(choice.run_dir)},
                                  {"log-every", where(is_recorded, choice.log_every)},
                                  {"profile", count(choice.profile)},
                                  {"check-replicas", choice.check_replicas},
                                  {"backup-dir", text(choice.backup_dir)},
                                  {"save-every", where(is_saved, choice.save_every)},
                                  {"shard-backup", where(is_saved, choice.shard_backup)},
                                  {"resume", where(is_saved, choice.resume)},
                                  {"on-not-finite", not_finite_name(choice.on_not_finite)},
                                  {"retryable-exit-code", count(choice.retryable_exit_code)},
                                  {"quiet", choice.quiet}};
  for (auto& value : metrics_values(choice)) values.push_back(std::move(value));
  return values;
}

Setting color_setting() {
  const char* no_color =
      std::getenv("NO_COLOR");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  if (no_color == nullptr || *no_color == '\0') return {"color", true, {}};
  return {"color", false, {.kind = OriginKind::kEnvironment, .name = "NO_COLOR"}};
}

std::string run_rows(const RunChoice& choice) {
  std::string text;
  if (!choice.run_dir.empty()) text += row("recorded in", choice.run_dir);
  if (!choice.mlflow_dir.empty()) text += row("MLflow's store", choice.mlflow_dir);
  if (!choice.backup_dir.empty()) {
    const char* sharing = choice.shard_backup ? ", each worker a part" : "";
    text += row("saved in", choice.backup_dir + ", every " + choice.save_every + sharing);
  }
  return text;
}

}  // namespace lockstep::apps
