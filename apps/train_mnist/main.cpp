#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "lockstep/apps/shared/command_line/failure.h"
#include "lockstep/apps/shared/command_line/resume_command.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"
#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"
#include "lockstep/apps/train_mnist/options/command_line.h"
#include "lockstep/apps/train_mnist/options/configuration.h"
#include "lockstep/apps/train_mnist/options/train_settings.h"
#include "lockstep/apps/train_mnist/training/decided_values.h"
#include "lockstep/apps/train_mnist/training/numbers_error.h"
#include "lockstep/apps/train_mnist/training/precision_choice.h"
#include "lockstep/apps/train_mnist/training/run_recording.h"
#include "lockstep/apps/train_mnist/training/training.h"
#include "lockstep/apps/train_mnist/training/training_callbacks.h"
#include "lockstep/runtime/devices/device.h"
#include "lockstep/runtime/precision/tf32.h"
#include "lockstep/training/callbacks/backup_and_restore.h"
#include "lockstep/training/callbacks/inject_faults.h"
#include "lockstep/training/callbacks/nan_guard.h"
#include "lockstep/training/callbacks/show_progress.h"
#include "lockstep/training/callbacks/stop_on_signal.h"
#include "lockstep/training/checkpoints/checkpoint_store.h"
#include "lockstep/training/reporting/records/run_directory.h"
#include "lockstep/training/trainer/model_summary.h"

namespace lockstep::apps {
namespace {

void print(const std::string& text) {
  std::cout << text << std::flush;
}

int print_devices() {
  for (const auto& device : list_devices()) print(device.str() + "\n");
  print(c10::str(num_gpus(), " GPUs; logical CPUs cpu:0, cpu:1, ... exist in any number\n"));
  return 0;
}

/// Keeps the number of the epoch in work.
class EpochCounter : public Callback {
 public:
  explicit EpochCounter(int64_t& epoch) : epoch_(epoch) {}
  void on_epoch_begin(FitState& state) override { epoch_ = state.epoch; }

 private:
  int64_t& epoch_;
};

/// Lets signals be remembered once a fit is about to make steps. Behind all callbacks that may wait for other
/// workers before that.
class BeginSteps : public Callback {
 public:
  explicit BeginSteps(InterruptionGuard& interruption) : interruption_(interruption) {}
  void on_fit_begin(FitState&) override { interruption_.begin_steps(); }

 private:
  InterruptionGuard& interruption_;
};

/// A signal has stopped the training. Thrown, so that the strategy, as it goes, tells the other workers.
struct Stopped {
  int signal;
};

/// Puts the run's record to its end, however it came about.
void finish_record(RecordRun* record, const History& history, int signal) {
  if (record == nullptr) return;
  if (signal != 0) {
    record->finish(RunStatus::kInterrupted, signal == SIGINT ? "SIGINT" : "SIGTERM");
  } else if (!history.stop_reason.empty()) {
    record->finish(RunStatus::kStoppedEarly, history.stop_reason);
  } else {
    record->finish(RunStatus::kCompleted);
  }
}

/// The same where an error has ended it, which is to reach the caller rather than what the record comes to.
void fail_record(RecordRun* record, RunStatus status, const std::string& reason) {
  if (record == nullptr) return;
  try {
    record->finish(status, reason);
  } catch (const std::exception& error) {
    std::cerr << "train_mnist: the record has no end: " << error.what() << std::endl;
  }
}

/// Whether worker 0 was given `folder` by a flag: a collective of the workers. Throws UsageError on all of
/// them where only others were.
bool is_given_to_chief(Strategy& strategy, const std::string& flag, const std::string& folder,
                       bool is_chief) {
  const auto sum_over_workers = [&](bool here) {
    return strategy.reduce(ReduceOp::kSum, strategy.distribute_values_from_function(
                                               [&](const ValueContext&) { return here ? 1 : 0; }));
  };
  const bool by_chief = sum_over_workers(is_chief && !folder.empty()) > 0;
  if (!by_chief && sum_over_workers(!folder.empty()) > 0)
    throw UsageError(flag + ": expected it for worker 0, which writes there, but got it for others only");
  return by_chief;
}

/// Where to record: a training that goes on from a backup has a folder of its own beside the one that its
/// earlier start has filled, such as runs/a-2.
std::string record_folder(const TrainOptions& options) {
  const bool goes_on = !options.backup_dir.empty() && options.resume != "never" &&
                       (options.resume != "auto" || !list_checkpoints(options.backup_dir).empty());
  std::string folder = options.run_dir;
  const auto is_used = [&] {
    std::error_code error;
    return !std::filesystem::is_empty(folder, error) && !error;
  };
  for (int number = 2; goes_on && is_used(); ++number) folder = c10::str(options.run_dir, "-", number);
  return folder;
}

/// What LOCKSTEP_FAULTS asks for, in a build that is made for tests.
std::vector<Fault> requested_faults() {
  const char* text =
      std::getenv("LOCKSTEP_FAULTS");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  if (text == nullptr || *text == '\0') return {};
#ifdef LOCKSTEP_FAULT_INJECTION
  try {
    return parse_faults(text);
  } catch (const InvalidArgument& error) {
    throw UsageError(std::string("LOCKSTEP_FAULTS: ") + error.what());
  }
#else
  throw UsageError("LOCKSTEP_FAULTS: expected none, as this build injects no faults; those with tests do");
#endif
}

void print_weights(const std::string& path, const LoadReport& report) {
  print(c10::str("weights          ", report.loaded.size(), " tensors of ", path, "\n"));
  for (const auto& line : report.describe()) print("                 " + line + "\n");
}

int train_by(const MadeStrategy& made, InterruptionGuard& interruption, CommandLine line,
             const std::string& resume) {
  const TrainOptions& options = line.options;
  Strategy& strategy = *made.strategy;
  check_precision(options.precision, strategy.devices());
  const Tf32Guard tf32(options.precision == PrecisionKind::kTf32);
  const ClusterResolver* cluster = strategy.cluster_resolver();
  const bool is_chief = cluster == nullptr || cluster->rank() == 0;  // all workers have the same to tell
  const bool is_silent = !is_chief || options.quiet;
  const bool is_recorded = is_given_to_chief(strategy, "--run-dir", options.run_dir, is_chief);
  const bool is_saved = is_given_to_chief(strategy, "--backup-dir", options.backup_dir, is_chief);
  std::optional<RunDirectory> directory;
  if (is_chief && is_recorded) {
    line.options.run_dir = record_folder(options);
    directory.emplace(options.run_dir);
  }

  const DataLocation location = locate_data(options.data);
  const ImageData data = load_images(location, options);
  const int64_t num_train = size_of(data.train);
  const TrainPlan plan = make_plan(options, strategy.num_replicas_in_sync(), num_train);
  decide_values(line, location, strategy);
  ResolvedRun resolved{.options = options,
                       .plan = plan,
                       .data = location.why,
                       .hint = location.hint,
                       .num_train = num_train,
                       .num_test = size_of(data.test),
                       .num_skipped = data.num_skipped,
                       .num_classes = data.num_classes,
                       .channels = channels_of(options.model),
                       .strategy = made.reason,
                       .replicas = strategy.describe(),
                       .num_replicas = strategy.num_replicas_in_sync()};
  const auto threads = strategy.run([](ReplicaContext&) { return at::get_num_threads(); });
  resolved.threads = threads.local_values().front();

  int64_t epoch = 1;
  auto display = display_of_stderr();
  display.is_silent = is_silent;
  std::ostream no_lines(nullptr);
  const auto progress = std::make_shared<ShowProgress>(std::cerr, is_silent ? no_lines : std::cout, display,
                                                       progress_options());
  const auto say = [progress](const std::string& text) {
    progress->clear();
    std::cerr << "train_mnist: " << text << std::endl;
  };
  Callbacks callbacks = training_callbacks(
      options, plan, is_recorded ? std::optional(RunPaths{is_chief ? options.run_dir : "."}) : std::nullopt,
      say);
  const auto record = directory ? make_record(directory->paths(), resolved, line.origins, data)
                                : std::shared_ptr<RecordRun>();
  if (record) callbacks.push_back(record);
  callbacks.push_back(progress);
  callbacks.push_back(std::make_shared<EpochCounter>(epoch));
  if (auto faults = requested_faults(); !faults.empty())
    callbacks.insert(callbacks.begin(), std::make_shared<InjectFaults>(std::move(faults)));
  const auto stopper = std::make_shared<StopOnSignal>(interruption);
  callbacks.push_back(stopper);
  if (is_saved) {
    callbacks.push_back(std::make_shared<BackupAndRestore>(
        BackupOptions{.folder = options.backup_dir.empty() ? "." : options.backup_dir,
                      .save_every = SaveInterval::parse(options.save_every),
                      .sharded = options.shard_backup,
                      .resume = options.resume,
                      .configuration = run_configuration(resolved, line.origins, LOCKSTEP_VERSION),
                      .on_message = say}));
  }
  const auto stop = [&](int signal) {
    say(c10::str("stopped by ", signal == SIGINT ? "SIGINT" : "SIGTERM", " in epoch ", epoch, "/",
                 options.epochs));
    if (is_saved && is_chief && stopper->signal() != 0)
      say("saved in " + options.backup_dir + "; to go on from there: " + resume);
    throw Stopped{signal};
  };
  const auto start = [&](torch::nn::Module& model) {
    resolved.num_parameters = count_parameters(model);
    if (directory)
      replace_file(directory->paths().config(), run_configuration(resolved, line.origins, LOCKSTEP_VERSION));
    if (!is_silent) print(configuration_text(resolved) + "\n" + model_summary(model) + "\n");
  };
  const auto report_weights = [&](const LoadReport& report) {
    if (!is_silent) print_weights(options.init_weights, report);
  };
  callbacks.push_back(std::make_shared<BeginSteps>(interruption));
  try {
    const auto history = train({.strategy = strategy,
                                .options = options,
                                .plan = plan,
                                .data = data,
                                .callbacks = callbacks,
                                .is_recorded = is_recorded,
                                .record = record,
                                .on_start = start,
                                .on_weights = report_weights,
                                .is_interrupted = [&] { return stopper->signal() != 0; }});
    finish_record(record.get(), history, stopper->signal());
    if (stopper->signal() != 0) stop(stopper->signal());
    if (!is_silent && !history.stop_reason.empty()) print("stopped early: " + history.stop_reason + "\n");
  } catch (const Stopped&) {
    throw;
  } catch (const NotFinite& error) {
    const auto told = not_finite(error.place(), options, plan);
    fail_record(record.get(), RunStatus::kFailed, told.what());
    throw told;
  } catch (const PeerLost& error) {
    // Signals come to all workers; another one may have got two, and ended at once.
    const bool was_stopped = interruption.signal() != 0;
    fail_record(record.get(), was_stopped ? RunStatus::kInterrupted : RunStatus::kFailed, error.what());
    if (!was_stopped) throw;
    stop(interruption.signal());
  } catch (const std::exception& error) {
    fail_record(record.get(), RunStatus::kFailed, describe_failure(std::current_exception()).message);
    throw;
  }
  return 0;
}

/// Throws a Failure, of which the other workers are told.
int run_training(const CommandLine& line, const std::string& resume) {
  InterruptionGuard interruption(/*from_first_step=*/true);
  torch::manual_seed(line.options.seed);
  const MadeStrategy made =
      choose_strategy(line.options, {.program = "train_mnist", .seed = line.options.seed});
  if (line.options.cuda_graph) check_cuda_graph(made.strategy->devices());
  try {
    return train_by(made, interruption, line, resume);
  } catch (const std::exception&) {
    made.strategy->report_failure(std::current_exception());
    throw describe_failure(std::current_exception(), made.strategy->cluster_resolver());
  }
}

int run_program(const std::string& program, const std::vector<std::string>& arguments) {
  const auto strategies = strategies_of_trainer(strategy_names());
  const CommandLine line = parse_command_line(arguments, strategies);
  switch (line.action) {
    case Action::kHelp:
      print(help_text(strategies));
      return 0;
    case Action::kVersion:
      print("train_mnist " LOCKSTEP_VERSION ", LibTorch " TORCH_VERSION "\n");
      return 0;
    case Action::kListDevices:
      return print_devices();
    case Action::kTrain:
      break;
  }
  return run_training(line, resume_command(program, arguments));
}

int end_by(const Failure& failure) {
  std::cerr << "train_mnist: error: " << failure.message << std::endl;
  return failure.exit_code;
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  try {
    return lockstep::apps::run_program(argv[0], {argv + 1, argv + argc});
  } catch (const lockstep::apps::Stopped& stopped) {
    return static_cast<int>(stopped.signal == SIGINT ? lockstep::ExitCode::kInterrupted
                                                     : lockstep::ExitCode::kTerminated);
  } catch (const lockstep::apps::Failure& failure) {
    return lockstep::apps::end_by(failure);
  } catch (...) {
    return lockstep::apps::end_by(lockstep::apps::describe_failure(std::current_exception()));
  }
}
