#include "lockstep/apps/train_gpt/options/gpt_facts.h"

#include <fmt/format.h>

#include "lockstep/apps/shared/command_line/configuration_file.h"
#include "lockstep/apps/shared/command_line/configuration_row.h"
#include "lockstep/apps/shared/command_line/setting_values.h"
#include "lockstep/apps/shared/session/run_flags.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_flags.h"
#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"
#include "lockstep/runtime/base/internal/number_text.h"

namespace lockstep::apps {
namespace {

using settings::NamedValues;

std::string model_line(const GptFacts& facts) {
  const GptOptions& model = facts.plan.model;
  const bool is_gpt2 = model.positions == GptPositions::kLearned;
  const std::string shared = model.num_key_value_heads == model.num_heads
                                 ? std::string()
                                 : fmt::format(", {} of keys and values", model.num_key_value_heads);
  const std::string experts =
      model.num_experts == 0 ? std::string()
                             : fmt::format(", {} of {} experts{}", model.experts_per_token, model.num_experts,
                                           model.num_shared_experts == 0
                                               ? std::string()
                                               : fmt::format(" and {} shared", model.num_shared_experts));
  return fmt::format("{} ({}), {} parameters: {} layers of {}, {} heads{}{}, {} tokens", facts.model,
                     gpt_family_name(is_gpt2 ? GptFamily::kGpt2 : GptFamily::kLlama),
                     grouped_number(num_gpt_parameters(model)), model.num_layers, model.width,
                     model.num_heads, shared, experts, model.vocabulary_size);
}

std::string batch_line(const GptFacts& facts) {
  const GptPlan& plan = facts.plan;
  std::string text = fmt::format("{} sequences of {}, {} tokens", plan.global_batch_size,
                                 plan.sequence_length, grouped_number(plan.tokens_per_step()));
  if (facts.num_replicas > 1 && !facts.options.replica_weights.empty()) {
    text += fmt::format(
        "; divided by {} among {} replicas",
        facts.options.replica_weights == "measured" ? "their measured speeds" : facts.options.replica_weights,
        facts.num_replicas);
  } else if (facts.num_replicas > 1) {
    const int64_t shard = (plan.global_batch_size + facts.num_replicas - 1) / facts.num_replicas;
    text += fmt::format("; {}{} sequences a replica",
                        plan.global_batch_size % facts.num_replicas == 0 ? "" : "up to ", shard);
  }
  if (plan.micro_batches > 1) text += fmt::format(", each step in {} pieces", plan.micro_batches);
  return text;
}

std::string rate_line(const GptFacts& facts) {
  const auto& options = facts.options;
  std::string text = fmt::format("{}", options.learning_rate);
  text += options.schedule == GptSchedule::kConstant
              ? ", constant"
              : fmt::format(", falling to {} along a cosine", options.final_learning_rate);
  if (facts.plan.warmup_steps > 0)
    text += fmt::format(", after a warm-up of {} steps", facts.plan.warmup_steps);
  return text;
}

/// Returns the rows of losses that the model's can be compared with.
std::string loss_rows(const GptFacts& facts) {
  std::string text;
  if (facts.entropy)
    text +=
        row("entropy", fmt::format("{:.4f} nats a token, the lowest possible loss; {:.4f} on the texts to "
                                   "test on",
                                   *facts.entropy, facts.best_loss.value_or(*facts.entropy)));
  if (facts.bigram_loss && facts.five_gram_loss)
    text += row("n-gram models",
                fmt::format("bigram {:.4f}, 5-gram {:.4f}", *facts.bigram_loss, *facts.five_gram_loss));
  return text;
}

SettingValue number_if(const std::optional<double>& value) {
  return value ? SettingValue(*value) : SettingValue();
}

NamedValues gpt_data_values(const GptTrainOptions& options) {
  const bool is_read = !is_generated(options);
  const bool is_shared = is_read && options.test_data.empty();
  return {{"data", options.data},
          {"fact-names", settings::count(options.fact_names)},
          {"fact-share", settings::where(options.fact_names > 0, options.fact_share)},
          {"test-data", settings::list(options.test_data)},
          {"test-share", settings::where(is_shared, options.test_share)},
          {"limit-train", settings::count(options.limit_train)},
          {"limit-test", options.limit_test},
          {"tokenizer", settings::text(options.tokenizer)},
          {"vocabulary-size", settings::count(options.vocabulary_size)},
          {"token-format", settings::where(is_read, token_format_name(options.token_format))},
          {"json-field", settings::where(is_read, options.json_field)},
          {"parquet-column", settings::text(options.parquet_column)},
          {"parquet-memory", settings::where(is_read, options.parquet_memory)},
          {"token-cache", settings::text(options.token_cache)},
          {"shuffle-window", settings::count(options.shuffle_window)}};
}

NamedValues gpt_model_values(const GptTrainOptions& options) {
  return {{"model", options.model},
          {"family", options.family ? SettingValue(gpt_family_name(*options.family)) : SettingValue()},
          {"layers", settings::count(options.layers)},
          {"hidden", settings::count(options.hidden)},
          {"heads", settings::count(options.heads)},
          {"kv-heads", settings::count(options.kv_heads)},
          {"mlp-hidden", settings::count(options.mlp_hidden)},
          {"experts", settings::count(options.experts)},
          {"experts-per-token", settings::where(options.experts > 0, options.experts_per_token)},
          {"shared-experts", settings::where(options.experts > 0, options.shared_experts)},
          {"expert-capacity", settings::where(options.experts > 0, options.expert_capacity)},
          {"sequence-length", settings::count(options.sequence_length)},
          {"dropout", options.dropout},
          {"init-weights", settings::text(options.init_weights)}};
}

NamedValues gpt_training_values(const GptTrainOptions& options) {
  const bool has_tokens = options.tokens_per_step > 0;
  const bool is_cosine = options.schedule == GptSchedule::kCosine;
  return {{"steps", options.steps},
          {"test-every", options.test_every},
          {"global-batch-size", settings::where(!has_tokens, options.global_batch_size)},
          {"tokens-per-step", settings::count(options.tokens_per_step)},
          {"micro-batch-size", settings::count(options.micro_batch_size)},
          {"recompute", gpt_recompute_name(options.recompute)},
          {"sequence-parallel", options.sequence_parallel},
          {"context-attention", gpt_context_attention_name(options.context_attention)},
          {"early-stopping", options.early_stopping},
          {"precision", precision_name(options.precision)},
          {"cuda-graph", options.cuda_graph},
          {"learning-rate", options.learning_rate},
          {"learning-rate-schedule", gpt_schedule_name(options.schedule)},
          {"final-learning-rate", settings::where(is_cosine, options.final_learning_rate)},
          {"warmup-steps", settings::where(options.warmup_steps >= 0, options.warmup_steps)},
          {"weight-decay", options.weight_decay},
          {"beta2", options.beta2},
          {"clip-norm", options.clip_norm},
          {"balance-loss", settings::where(options.experts > 0, options.balance_loss)},
          {"router-z-loss", settings::where(options.experts > 0, options.router_z_loss)},
          {"seed", options.seed}};
}

NamedValues sample_values(const GptTrainOptions& options) {
  return {{"sample", settings::text(options.sample)},
          {"sample-tokens", options.sample_tokens},
          {"temperature", options.temperature},
          {"top-k", settings::count(options.top_k)},
          {"top-p", options.top_p}};
}

}  // namespace

std::string gpt_configuration_text(const GptFacts& facts) {
  const auto& options = facts.options;
  std::string text = row("data", facts.data);
  text += row("sequences", fmt::format("{} to train on, {} to test on", grouped_number(facts.num_train),
                                       grouped_number(facts.num_test)));
  text += loss_rows(facts);
  text += row("model", model_line(facts));
  text += row("strategy", facts.strategy);
  text += row("replicas", facts.replicas);
  text += row("threads", fmt::format("{} in each replica", facts.threads));
  text += row("peak speed",
              fmt::format("{:.3g} GFLOP/s, {}; training takes {:.3g} MFLOP a token", facts.peak_flops / 1e9,
                          facts.peak_source, facts.plan.flops_per_token / 1e6));
  text += row("global batch", batch_line(facts));
  text += row("steps",
              fmt::format("{}, a test after every {}", grouped_number(options.steps), options.test_every));
  if (options.early_stopping > 0)
    text += row("early stopping",
                fmt::format("after {} tests without a better validation loss", options.early_stopping));
  if (options.recompute == GptRecompute::kEveryBlock) text += row("recompute", "every block in backward");
  if (options.sequence_parallel) text += row("sequences", "cut between layers along the axis tensor");
  text += row("precision", precision_text(options.precision));
  if (options.cuda_graph) text += row("CUDA graph", "of each step, replayed after a few calls");
  text +=
      row("optimizer", fmt::format("AdamW, weight decay {}{}", options.weight_decay,
                                   options.clip_norm > 0
                                       ? fmt::format(", gradients clipped to a norm of {}", options.clip_norm)
                                       : std::string()));
  text += row("learning rate", rate_line(facts));
  text += row("seed", fmt::format("{}", options.seed));
  return text + run_rows(options);
}

std::vector<Setting> gpt_settings(const GptTrainOptions& options,
                                  const std::map<std::string, Origin>& origins) {
  return settings::with_origins(
      {gpt_data_values(options), gpt_model_values(options), gpt_training_values(options),
       pipeline_values(options), layout_policy_values(options), sample_values(options), run_values(options),
       strategy_values(options)},
      origins);
}

std::vector<Setting> gpt_resolved_settings(const GptFacts& facts) {
  return {{"data", facts.data, {}},
          {"sequences-to-train-on", facts.num_train, {}},
          {"sequences-to-test-on", facts.num_test, {}},
          {"parameters", num_gpt_parameters(facts.plan.model), {}},
          {"vocabulary-size", facts.plan.model.vocabulary_size, {}},
          {"sequence-length", facts.plan.sequence_length, {}},
          {"strategy", facts.strategy, {}},
          {"replicas", int64_t{facts.num_replicas}, {}},
          {"threads", int64_t{facts.threads}, {}},
          {"tokens-per-step", facts.plan.tokens_per_step(), {}},
          {"micro-batches", facts.plan.micro_batches, {}},
          {"warmup-steps", facts.plan.warmup_steps, {}},
          {"flops-per-token", facts.plan.flops_per_token, {}},
          {"peak-flops-per-second", facts.peak_flops, {}},
          {"entropy", number_if(facts.entropy), {}},
          {"best-possible-test-loss", number_if(facts.best_loss), {}},
          {"bigram-test-loss", number_if(facts.bigram_loss), {}},
          {"five-gram-test-loss", number_if(facts.five_gram_loss), {}},
          {"settings-changed-on-resume", settings::list(facts.changed_settings), {}},
          color_setting()};
}

std::string gpt_configuration_json(const GptFacts& facts, const std::map<std::string, Origin>& origins,
                                   const std::string& version) {
  return configuration_json({.program = "train_gpt",
                             .version = version,
                             .values = gpt_settings(facts.options, origins),
                             .resolved = gpt_resolved_settings(facts)});
}

}  // namespace lockstep::apps
