#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <csignal>
#include <iostream>

#include "lockstep/apps/command_line/failure.h"
#include "lockstep/apps/train_mnist/command_line.h"
#include "lockstep/apps/train_mnist/configuration.h"
#include "lockstep/apps/train_mnist/numbers_error.h"
#include "lockstep/apps/train_mnist/precision_choice.h"
#include "lockstep/apps/train_mnist/stop_on_signal.h"
#include "lockstep/apps/train_mnist/strategy_choice.h"
#include "lockstep/apps/train_mnist/training.h"
#include "lockstep/runtime/device.h"
#include "lockstep/runtime/tf32.h"
#include "lockstep/training/learning_rate_schedule.h"
#include "lockstep/training/nan_guard.h"
#include "lockstep/training/show_progress.h"

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

/// Often enough that a long epoch is not trained in vain, seldom enough that waiting for a GPU costs nothing.
constexpr int64_t kStepsBetweenNanChecks = 100;

ShowProgressOptions progress_options() {
  return {.text = {.unit = "images",
                   .validation = "test",
                   .names = {"loss", "accuracy", "validation_accuracy", "examples_per_second"}}};
}

std::shared_ptr<Callback> learning_rate_schedule(const TrainOptions& options, const TrainPlan& plan) {
  if (options.schedule == ScheduleKind::kConstant) return constant_schedule(plan.learning_rate);
  return cosine_schedule(plan.learning_rate, {.num_steps = plan.num_steps});
}

/// Keeps the number of the epoch in work.
class EpochCounter : public Callback {
 public:
  explicit EpochCounter(int64_t& epoch) : epoch_(epoch) {}
  void on_epoch_begin(FitState& state) override { epoch_ = state.epoch; }

 private:
  int64_t& epoch_;
};

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
  const auto progress = std::make_shared<ShowProgress>(progress_options());
  int64_t epoch = 1;
  const auto stop = [&] {
    progress->clear();
    std::cerr << "train_mnist: stopped by " << (interruption.signal() == SIGINT ? "SIGINT" : "SIGTERM")
              << " in epoch " << epoch << "/" << options.epochs << std::endl;
    throw Stopped{interruption.signal()};
  };
  const auto start = [&](torch::nn::Module& model) {
    for (const auto& parameter : model.parameters()) resolved.num_parameters += parameter.numel();
    if (!is_silent) print(configuration_text(resolved) + "\n");
  };
  try {
    train({.strategy = strategy,
           .options = options,
           .plan = plan,
           .data = data,
           .callbacks = {std::make_shared<NanGuard>(NanGuardOptions{.every_steps = kStepsBetweenNanChecks}),
                         learning_rate_schedule(options, plan), progress,
                         std::make_shared<EpochCounter>(epoch), std::make_shared<StopOnSignal>(interruption)},
           .on_start = start});
    if (interruption.signal() != 0) stop();
  } catch (const NotFinite& error) {
    throw loss_not_finite(error.epoch(), error.step(), error.replica(), error.device(), options, plan);
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
