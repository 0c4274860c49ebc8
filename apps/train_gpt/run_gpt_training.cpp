#include "lockstep/apps/train_gpt/run_gpt_training.h"

#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "lockstep/apps/shared/monitoring/serve_metrics.h"
#include "lockstep/apps/shared/precision/precision_choice.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/session/run_by_strategy.h"
#include "lockstep/apps/shared/session/worker_role.h"
#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"
#include "lockstep/apps/train_gpt/data/baselines.h"
#include "lockstep/apps/train_gpt/data/gpt_data.h"
#include "lockstep/apps/train_gpt/gpt_session.h"
#include "lockstep/apps/train_gpt/options/gpt_facts.h"
#include "lockstep/apps/train_gpt/options/gpt_plan.h"
#include "lockstep/apps/train_gpt/training/gpt_axes.h"
#include "lockstep/apps/train_gpt/training/gpt_layout.h"
#include "lockstep/apps/train_gpt/training/gpt_logs.h"
#include "lockstep/apps/train_gpt/training/gpt_step.h"
#include "lockstep/apps/train_gpt/training/peak_flops.h"
#include "lockstep/runtime/precision/tf32.h"

namespace lockstep::apps {
namespace {

GptFacts resolve_facts(const MadeStrategy& made, const GptTrainOptions& options, const GptPlan& plan,
                       const BaseModel& base, const GptData& data) {
  Strategy& strategy = *made.strategy;
  const PeakFlops peak = peak_flops(strategy, options.precision);
  return {.options = options,
          .plan = plan,
          .model = base.name,
          .data = data.description,
          .num_train = data.train.num_sequences(),
          .num_test = data.test.num_sequences(),
          .strategy = made.reason,
          .replicas = strategy.describe(),
          .num_replicas = strategy.num_replicas_in_sync(),
          .threads = threads_per_replica(strategy),
          .peak_flops = peak.flops_per_second,
          .peak_source = peak.source};
}

/// Measures what the chief prints and records. The workers' logs must have the same names, so that those that
/// stop early do so together: all of them measure.
Baselines measure(const GptTrainOptions& options, const GptPlan& plan, const GptData& data, GptFacts& facts) {
  const Baselines baselines = measure_baselines(data, options.steps * plan.tokens_per_step());
  facts.entropy = baselines.entropy;
  facts.best_loss = baselines.best;
  facts.bigram_loss = baselines.bigram;
  facts.five_gram_loss = baselines.five_gram;
  return baselines;
}

void train_by(const MadeStrategy& made, InterruptionGuard& interruption, GptCommandLine line,
              const std::string& resume, std::chrono::steady_clock::time_point began) {
  const GptTrainOptions& options = line.options;
  Strategy& strategy = *made.strategy;
  check_precision(options.precision, strategy.devices());
  const Tf32Guard tf32(tf32_use(options.precision));
  const BaseModel base = base_model(options);
  const int64_t sequence_length = sequence_length_of(options, base);
  const WorkerRole role = role_of(strategy, options);
  const auto metrics = serve_metrics("train_gpt", options, strategy.cluster_resolver());
  const GptData data = open_gpt_data(
      options, base, role.is_silent ? std::function<void(const std::string&)>() : [](const auto& text) {
        log_line("train_gpt", text);
      });
  GptPlan plan = make_gpt_plan(options, model_to_train(options, base, data.vocabulary_size), sequence_length,
                               strategy.num_replicas_in_sync());
  check_axes(strategy.mesh(), options, base, plan.model);
  check_experts(strategy, plan.model);
  check_sequence_parallel(strategy.mesh(), options, sequence_length);
  plan_pipeline(strategy, options, plan);
  refuse_what_does_not_fit(strategy, options, plan);
  plan.stage_costs = gpt_stage_costs(options, plan, strategy);
  const auto directory = open_run_directory(strategy, role, line.options);
  decide_strategy(strategy, strategy_of_workers(strategy), line.options, line.origins);
  GptFacts facts = resolve_facts(made, options, plan, base, data);
  const Baselines baselines = measure(options, plan, data, facts);
  const GptScale scale{.sequence_length = sequence_length,
                       .flops_per_token = plan.flops_per_token,
                       .peak_flops = facts.peak_flops,
                       .best_loss = baselines.best};
  GptSession session({.program = "train_gpt",
                      .interruption = interruption,
                      .resume = resume,
                      .role = role,
                      .paths = directory ? std::optional(directory->paths()) : std::nullopt,
                      .metrics = metrics,
                      .progress = gpt_progress_options(scale)},
                     {.strategy = strategy,
                      .data = data,
                      .baselines = baselines,
                      .scale = scale,
                      .origins = line.origins,
                      .began = began,
                      .facts = std::move(facts)});
  session.run();
}

}  // namespace

void run_gpt_training(const GptCommandLine& given, const std::string& resume) {
  GptCommandLine line = given;
  if (const std::string chosen = choose_layout(line.options); !chosen.empty()) log_line("train_gpt", chosen);
  run_by_strategy(line.options, {.program = "train_gpt",
                                 .seed = line.options.seed,
                                 .cuda_graph = line.options.cuda_graph,
                                 .shards_parameters = true,
                                 .cuts_sequences = true,
                                 .train = [&](const MadeStrategy& made, InterruptionGuard& interruption,
                                              std::chrono::steady_clock::time_point began) {
                                   train_by(made, interruption, line, resume, began);
                                 }});
}

}  // namespace lockstep::apps
