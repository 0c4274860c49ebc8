#include "lockstep/apps/compare_strategies/trials/measured_tokens.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/apps/compare_strategies/trials/timed_steps.h"
#include "lockstep/apps/shared/precision/precision_choice.h"
#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"
#include "lockstep/apps/train_gpt/data/gpt_data.h"
#include "lockstep/apps/train_gpt/options/gpt_plan.h"
#include "lockstep/apps/train_gpt/training/gpt_axes.h"
#include "lockstep/apps/train_gpt/training/gpt_optimizer.h"
#include "lockstep/apps/train_gpt/training/gpt_step.h"
#include "lockstep/apps/train_gpt/training/gpt_weights_choice.h"
#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/runtime/precision/tf32.h"
#include "lockstep/strategies/nn/losses.h"

namespace lockstep::apps {
namespace {

using GptOptimizer = std::unique_ptr<torch::optim::Optimizer>;

struct TokenStep {
  PrecisionKind precision;
  int64_t micro_batches = 1;
  std::optional<double> clip_norm;
};

/// Runs once per replica. Returns its part of the global batch's mean loss. Replicas compute equally many
/// pieces of their shards, but none that is empty on all of them.
torch::Tensor measured_token_step(ReplicaContext& replica, Gpt& model, GptOptimizer& optimizer,
                                  GradScaler& scaler, const TokenStep& step, const Example& shard) {
  optimizer->zero_grad();
  const auto backward = [&](const Example& batch) {
    torch::Tensor losses;
    {
      const auto cast = replica.autocast(autocast_dtype(step.precision));
      losses = sequence_losses(model, batch);
    }
    const auto loss = compute_average_loss(replica, losses);
    scaler.scale(loss).backward();
    return loss.detach();
  };
  const auto apply = [&] {
    replica.apply_gradients(*optimizer, {.clip_norm = step.clip_norm, .scaler = &scaler});
    scaler.update();
  };
  if (model->stages() != nullptr) {
    const auto losses = model->forward_backward(
        replica, shard.data, shard.target, {.autocast = autocast_dtype(step.precision), .scaler = &scaler});
    apply();
    return compute_average_loss(replica, losses);
  }
  const int64_t size = BatchTraits<Example>::size(shard);
  const int64_t global = replica.global_batch_size().value_or(size);
  const int64_t largest = (global + replica.num_replicas() - 1) / replica.num_replicas();
  const int64_t count = std::clamp<int64_t>(largest, 1, step.micro_batches);
  const auto piece = [&](int64_t index) {
    return BatchTraits<Example>::slice(shard, index * size / count, (index + 1) * size / count);
  };
  torch::Tensor sum;
  for (int64_t i = 0; i + 1 < count; ++i) {
    const auto hold = replica.accumulate();
    const auto loss = backward(piece(i));
    sum = sum.defined() ? sum + loss : loss;
  }
  const auto last = backward(count == 1 ? shard : piece(count - 1));
  apply();
  return sum.defined() ? sum + last : last;
}

MeasuredTraining train_and_measure_tokens(const CompareOptions& options, const GptTrainOptions& work,
                                          const GptPlan& plan, Strategy& strategy, const GptData& data) {
  auto model =
      strategy.scope([&](ReplicaContext& replica) { return make_gpt(work, plan, strategy, replica); });
  if (!work.init_weights.empty()) load_initial_weights(work, model);
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return make_gpt_optimizer(work, model[replica]); });
  auto scaler = strategy.scope([&](ReplicaContext& replica) {
    return GradScaler(replica.device(), {.enabled = needs_loss_scaling(work.precision)});
  });
  const auto batches = distribute(strategy, data.train, gpt_batches(work, plan));
  const TokenStep step{.precision = work.precision,
                       .micro_batches = plan.micro_batches,
                       .clip_norm = work.clip_norm > 0 ? std::optional(work.clip_norm) : std::nullopt};
  model.train();
  MeasuredTraining measured;
  measured.run = time_steps(options, strategy, batches, [&](const PerReplica<Example>& batch) {
    return strategy.run(measured_token_step, model, optimizer, scaler, step, batch);
  });
  measured.run.examples *= plan.sequence_length;
  set_memory(strategy, module_pointers(model.local_values()), optimizer.local_values(), measured);
  set_parameters(whole_parameters(strategy, module_pointers(model.local_values())), measured);
  return measured;
}

}  // namespace

MeasuredTraining measure_tokens(const CompareOptions& options, const GptTrainOptions& work) {
  const MadeStrategy made = choose_strategy(work, {.program = "compare_strategies",
                                                   .seed = work.seed,
                                                   .shards_parameters = true,
                                                   .cuts_sequences = true});
  check_precision(work.precision, made.strategy->devices());
  const Tf32Guard tf32(tf32_use(work.precision));
  const BaseModel base = base_model(work);
  const GptData data = open_gpt_data(work, base, {});
  const int64_t sequence_length = sequence_length_of(work, base);
  GptPlan plan = make_gpt_plan(work, model_to_train(work, base, data.vocabulary_size), sequence_length,
                               made.strategy->num_replicas_in_sync());
  check_axes(made.strategy->mesh(), work, base, plan.model);
  check_sequence_parallel(made.strategy->mesh(), work, sequence_length);
  plan_pipeline(*made.strategy, work, plan);
  auto measured = train_and_measure_tokens(options, work, plan, *made.strategy, data);
  measured.run.data = data.description;
  return measured;
}

}  // namespace lockstep::apps
