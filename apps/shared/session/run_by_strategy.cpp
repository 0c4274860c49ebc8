#include "lockstep/apps/shared/session/run_by_strategy.h"

#include <torch/utils.h>

#include <exception>

#include "lockstep/apps/shared/command_line/failure.h"
#include "lockstep/apps/shared/precision/precision_choice.h"
#include "lockstep/apps/shared/run_recording.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"

namespace lockstep::apps {

void run_by_strategy(const StrategyChoice& choice, const StrategyRun& run) {
  const auto began = std::chrono::steady_clock::now();
  InterruptionGuard interruption(/*from_first_step=*/true);
  torch::manual_seed(run.seed);
  const MadeStrategy made = choose_strategy(choice, {.program = run.program,
                                                     .seed = run.seed,
                                                     .shards_parameters = run.shards_parameters,
                                                     .cuts_sequences = run.cuts_sequences});
  if (run.cuda_graph) check_cuda_graph(made.strategy->devices());
  try {
    run.train(made, interruption, began);
  } catch (const std::exception&) {
    made.strategy->report_failure(std::current_exception());
    throw describe_failure(std::current_exception(), made.strategy->cluster_resolver());
  }
}

std::optional<RunDirectory> open_run_directory(const Strategy& strategy, const WorkerRole& role,
                                               RunChoice& choice) {
  return make_run_directory(
      strategy, role.is_recorded,
      {.run_dir = choice.run_dir, .backup_dir = choice.backup_dir, .resume = choice.resume}, choice.run_dir);
}

}  // namespace lockstep::apps
