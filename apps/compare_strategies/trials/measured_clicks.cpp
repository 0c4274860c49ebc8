#include "lockstep/apps/compare_strategies/trials/measured_clicks.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>

#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"
#include "lockstep/apps/train_ctr/click_data.h"
#include "lockstep/apps/train_ctr/ctr_training.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"
#include "lockstep/training/parameter_server/serve_parameters.h"

namespace lockstep::apps {
namespace {

MeasuredTraining memory_alone() {
  MeasuredRun run;
  run.peak_memory_bytes = measurement::peak_memory_bytes();
  return {.run = run, .parameters = {}};
}

/// Seconds that replicas have spent so far, on average.
struct MeanTimes {
  double waiting = 0;    ///< for other replicas; unknown with parameter servers
  double computing = 0;  ///< only with parameter servers
};

MeanTimes mean_times(Strategy& strategy, int num_workers) {
  const auto* served = dynamic_cast<const ParameterServerStrategy*>(&strategy);
  if (served == nullptr) return {.waiting = mean_seconds_waited(strategy)};
  return {.computing = served->worker_times().computing / num_workers};
}

std::string staleness_text(const CtrServing& serving) {
  double updates = 0, sum = 0;
  uint64_t most = 0;
  for (const auto& [staleness, count] : serving.staleness) {
    updates += static_cast<double>(count);
    sum += static_cast<double>(staleness) * static_cast<double>(count);
    most = std::max(most, staleness);
  }
  return updates == 0 ? "" : c10::str(", staleness ", sum / updates, " on average, ", most, " at most");
}

}  // namespace

MeasuredTraining measure_clicks(const CompareOptions& options, const CtrOptions& work) {
  const auto& compared = options.strategies.at(static_cast<size_t>(options.measuring.strategy));
  if (const auto cluster = requested_cluster(work); cluster && cluster->task_type() == "ps") {
    serve_parameters(cluster, {.backup_dir = {}, .on_message = [](const std::string&) {}});
    return memory_alone();
  }
  ParameterServerOptions parameters{.max_staleness = work.max_staleness};
  parameters.on_message = [](const std::string&) {};
  const auto made =
      choose_strategy(work, {.program = "compare_strategies", .seed = work.seed, .parameters = parameters});
  Strategy& strategy = *made.strategy;
  const ClickData data = open_click_data(work);
  CtrTraining training(strategy, work, data);
  if (strategy.serve()) return memory_alone();

  const int num_processes = num_workers(compared);
  MeasuredRun run{.replicas = strategy.num_replicas_in_sync(), .data = data.description};
  const auto train = [&](int64_t begin, int64_t end) {
    training.train(begin, end, {.on_step = [&](int64_t, double loss) {
                     run.losses.push_back(loss);
                     return true;
                   }});
  };
  train(0, options.warmup_steps);
  const auto before = training.result();
  const MeanTimes times_before = mean_times(strategy, num_processes);
  train(options.warmup_steps, options.steps);
  run.description = strategy.describe();  // with the last weights of its replicas
  const auto after = training.result();
  run.examples = after.rows - before.rows;
  run.seconds = after.seconds - before.seconds;
  run.data_wait_seconds = after.data_wait_seconds - before.data_wait_seconds;
  const MeanTimes times_after = mean_times(strategy, num_processes);
  run.communication_seconds = times_after.waiting - times_before.waiting;
  if (after.serving) {
    // Not a sum of reported waits: a worker without any step reports nothing, but has waited too.
    run.communication_seconds = std::max(0.0, run.seconds - (times_after.computing - times_before.computing));
    run.replicas *= num_processes;
    run.description += staleness_text(*after.serving);
  }
  run.peak_memory_bytes = measurement::peak_memory_bytes();  // before this process reads the tables
  MeasuredTraining measured{.run = std::move(run), .parameters = {}};
  set_parameters(training.parameters(), measured);
  strategy.end();
  return measured;
}

}  // namespace lockstep::apps
