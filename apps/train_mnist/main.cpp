#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <csignal>
#include <iostream>

#include "lockstep/apps/train_mnist/command_line.h"
#include "lockstep/apps/train_mnist/configuration.h"
#include "lockstep/apps/command_line/failure.h"
#include "lockstep/apps/train_mnist/precision_choice.h"
#include "lockstep/apps/train_mnist/strategy_choice.h"
#include "lockstep/apps/train_mnist/training.h"
#include "lockstep/runtime/device.h"
#include "lockstep/runtime/tf32.h"

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

/// A signal has stopped the training. Thrown, so that the strategy, as it goes, tells the other workers.
struct Stopped {
  int signal;
};

int run_training(const TrainOptions& options) {
  const InterruptionGuard interruption;
  torch::manual_seed(options.seed);
  const MadeStrategy made = choose_strategy(options);
  Strategy& strategy = *made.strategy;
  check_precision(options.precision, strategy.devices());
  const Tf32Guard tf32(options.precision == PrecisionKind::kTf32);
  const DataLocation location = locate_data(options.data);
  const ImageData data = load_images(location, options);
  const int64_t num_train = size_of(data.train);
  const TrainPlan plan = make_plan(options, strategy.num_replicas_in_sync(), num_train);
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

  const ClusterResolver* cluster = strategy.cluster_resolver();
  const bool is_silent = cluster != nullptr && cluster->rank() != 0;  // all workers have the same to tell
  DisplayOptions shown = display_of_stderr();
  shown.is_silent = is_silent;
  ProgressDisplay display(std::cerr, shown);
  int64_t epochs_done = 0;
  const auto stop = [&] {
    display.clear();
    std::cerr << "train_mnist: stopped by " << (interruption.signal() == SIGINT ? "SIGINT" : "SIGTERM")
              << " in epoch " << epochs_done + 1 << "/" << options.epochs << std::endl;
    throw Stopped{interruption.signal()};
  };
  try {
    const bool finished = train({.strategy = strategy,
                                 .options = options,
                                 .plan = plan,
                                 .data = data,
                                 .display = display,
                                 .interruption = interruption,
                                 .on_start =
                                     [&](int64_t num_parameters) {
                                       resolved.num_parameters = num_parameters;
                                       if (!is_silent) print(configuration_text(resolved) + "\n");
                                     },
                                 .on_epoch =
                                     [&](const EpochReport& report) {
                                       display.clear();
                                       if (!is_silent) print(epoch_line(report) + "\n");
                                       epochs_done = report.epoch;
                                     }});
    if (!finished) stop();
  } catch (const PeerLost&) {
    // Signals come to all workers; another one may have stopped a step earlier.
    if (interruption.signal() == 0) throw;
    stop();
  }
  return 0;
}

int run_program(const std::vector<std::string>& arguments) {
  const CommandLine line = parse_command_line(arguments, strategy_names());
  switch (line.action) {
    case Action::kHelp:
      print(help_text(strategy_names()));
      return 0;
    case Action::kVersion:
      print("train_mnist " LOCKSTEP_VERSION ", LibTorch " TORCH_VERSION "\n");
      return 0;
    case Action::kListDevices:
      return print_devices();
    case Action::kTrain:
      break;
  }
  return run_training(line.options);
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  try {
    return lockstep::apps::run_program({argv + 1, argv + argc});
  } catch (const lockstep::apps::Stopped& stopped) {
    return static_cast<int>(stopped.signal == SIGINT ? lockstep::ExitCode::kInterrupted
                                                     : lockstep::ExitCode::kTerminated);
  } catch (...) {
    const auto failure = lockstep::apps::describe_failure(std::current_exception());
    std::cerr << "train_mnist: error: " << failure.message << std::endl;
    return failure.exit_code;
  }
}
