#include "lockstep/apps/train_gpt/options/gpt_command_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/apps/shared/command_line/data_place.h"
#include "lockstep/apps/shared/planning/layout_policy.h"
#include "lockstep/apps/shared/planning/quantity.h"
#include "lockstep/apps/shared/session/run_flags.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_flags.h"
#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"
#include "lockstep/apps/train_gpt/options/gpt_flags.h"
#include "lockstep/models/gpt/gpt_presets.h"

namespace lockstep::apps {
namespace {

constexpr IntegerRange kGptCounts{.least = 1, .most = 1'000'000'000};
constexpr IntegerRange kGptCountsOrNone{.least = 0, .most = 1'000'000'000};
constexpr IntegerRange kModelSizes{.least = 1, .most = 1'000'000};
constexpr IntegerRange kExpertCounts{.least = 1, .most = 4096};
constexpr IntegerRange kExpertCountsOrNone{.least = 0, .most = 4096};
constexpr IntegerRange kFactNames{.least = 1, .most = 128};
constexpr IntegerRange kVocabularySizes{.least = 1, .most = 4'194'304};

/// Returns the places of a list flag; `otherwise` if it was not given.
std::vector<std::string> places(const Arguments& given, const std::string& flag,
                                const std::vector<std::string>& otherwise) {
  if (!given.has(flag)) return otherwise;
  auto places = given.list(flag);
  if (places.empty() || std::find(places.begin(), places.end(), "") != places.end())
    given.refuse(flag, flag == "data" ? "generated, or files and folders" : "files and folders");
  for (const std::string& place : places) refuse_credentials(flag, place);
  return places;
}

std::string text_or_refuse(const Arguments& given, const std::string& flag, const std::string& otherwise,
                           const std::string& expected) {
  std::string text = given.text(flag, otherwise);
  if (given.has(flag) && text.empty()) given.refuse(flag, expected);
  return text;
}

void read_gpt_data(const Arguments& given, GptTrainOptions& options) {
  options.data = places(given, "data", options.data);
  options.test_data = places(given, "test-data", options.test_data);
  if (given.has("test-share")) options.test_share = given.factor("test-share", options.test_share);
  options.limit_train = given.integer("limit-train", kGptCounts, options.limit_train);
  options.limit_test = given.integer("limit-test", kGptCounts, options.limit_test);
  options.tokenizer = text_or_refuse(given, "tokenizer", "", "bytes, a file or a folder");
  options.vocabulary_size = given.integer("vocabulary-size", kVocabularySizes, options.vocabulary_size);
  options.token_format = given.choice<TokenFormat>("token-format",
                                                   {{"auto", TokenFormat::kAuto},
                                                    {"uint16", TokenFormat::kUint16},
                                                    {"uint32", TokenFormat::kUint32},
                                                    {"llm.c", TokenFormat::kLlmC}},
                                                   options.token_format);
  options.json_field = text_or_refuse(given, "json-field", options.json_field, "a field's name");
  options.parquet_column = text_or_refuse(given, "parquet-column", "", "a column's name");
  options.parquet_memory = given.text("parquet-memory", options.parquet_memory);
  if (given.has("parquet-memory")) parse_bytes("parquet-memory", options.parquet_memory);
  options.token_cache = text_or_refuse(given, "token-cache", "", "a folder");
  options.shuffle_window = given.integer("shuffle-window", kGptCounts, options.shuffle_window);
  options.fact_names = given.integer("fact-names", kFactNames, options.fact_names);
  options.fact_share = given.positive("fact-share", options.fact_share);
  if (options.fact_share > 1) given.refuse("fact-share", "a number above 0, at most 1");
  if (given.has("fact-share") && options.fact_names == 0)
    given.refuse_together("fact-share", "expected it with --fact-names only");
  if (!is_generated(options)) {
    if (given.has("fact-names"))
      given.refuse_together("fact-names", "expected it with --data generated only");
    return;
  }
  for (const std::string flag : {"test-data", "test-share", "tokenizer", "vocabulary-size", "token-format",
                                 "json-field", "parquet-column", "parquet-memory", "token-cache"}) {
    if (given.has(flag))
      given.refuse_together(flag, "expected it with files as --data only, but got --data generated");
  }
}

}  // namespace

void read_gpt_sizes(const Arguments& given, GptTrainOptions& options) {
  if (given.has("family"))
    options.family = given.choice<GptFamily>(
        "family", {{"gpt2", GptFamily::kGpt2}, {"llama", GptFamily::kLlama}}, GptFamily::kLlama);
  options.layers = given.integer("layers", kModelSizes, options.layers);
  options.hidden = given.integer("hidden", kModelSizes, options.hidden);
  options.heads = given.integer("heads", kModelSizes, options.heads);
  options.kv_heads = given.integer("kv-heads", kModelSizes, options.kv_heads);
  options.mlp_hidden = given.integer("mlp-hidden", kModelSizes, options.mlp_hidden);
  options.experts = given.integer("experts", kExpertCounts, options.experts);
  options.experts_per_token = given.integer("experts-per-token", kExpertCounts, options.experts_per_token);
  options.shared_experts = given.integer("shared-experts", kExpertCountsOrNone, options.shared_experts);
  options.expert_capacity = given.amount("expert-capacity", options.expert_capacity);
  if (options.experts == 0) {
    for (const std::string flag : {"experts-per-token", "shared-experts", "expert-capacity"})
      if (given.has(flag)) given.refuse_together(flag, "expected it with --experts only");
  } else if (options.experts_per_token > options.experts) {
    given.refuse_together(
        given.has("experts-per-token") ? "experts-per-token" : "experts",
        fmt::format("expected --experts-per-token of at most the {} of --experts, but got {}",
                    options.experts, options.experts_per_token));
  }
  options.sequence_length = given.integer("sequence-length", kModelSizes, options.sequence_length);
  options.dropout = given.fraction("dropout", options.dropout);
  options.init_weights = text_or_refuse(given, "init-weights", "", "a folder or a file");
}

void read_gpt_model(const Arguments& given, GptTrainOptions& options) {
  options.model = given.name("model", gpt_preset_names(), options.model);
  read_gpt_sizes(given, options);
}

namespace {

void read_learning_rates(const Arguments& given, GptTrainOptions& options) {
  options.learning_rate = given.positive("learning-rate", options.learning_rate);
  options.schedule = given.choice<GptSchedule>(
      "learning-rate-schedule", {{"cosine", GptSchedule::kCosine}, {"constant", GptSchedule::kConstant}},
      options.schedule);
  options.final_learning_rate = given.amount("final-learning-rate", options.final_learning_rate);
  if (given.has("final-learning-rate") && options.schedule != GptSchedule::kCosine)
    given.refuse_together("final-learning-rate", "expected it with --learning-rate-schedule cosine only");
  if (options.final_learning_rate > options.learning_rate)
    given.refuse_together("final-learning-rate",
                          fmt::format("expected at most the {} of --learning-rate", options.learning_rate));
  options.warmup_steps = given.integer("warmup-steps", kGptCountsOrNone, options.warmup_steps);
  if (options.warmup_steps > options.steps)
    given.refuse_together("warmup-steps", fmt::format("expected at most the {} of --steps", options.steps));
}

void read_gpt_training(const Arguments& given, GptTrainOptions& options) {
  options.steps = given.integer("steps", kGptCounts, options.steps);
  options.test_every = std::min(given.integer("test-every", kGptCounts, options.test_every), options.steps);
  options.global_batch_size = given.integer("global-batch-size", kGptCounts, options.global_batch_size);
  options.tokens_per_step = given.integer("tokens-per-step", kGptCounts, options.tokens_per_step);
  options.micro_batch_size = given.integer("micro-batch-size", kGptCounts, options.micro_batch_size);
  options.recompute = given.choice<GptRecompute>(
      "recompute", {{"nothing", GptRecompute::kNothing}, {"every_block", GptRecompute::kEveryBlock}},
      options.recompute);
  options.sequence_parallel = given.is_on("sequence-parallel");
  options.context_attention = given.choice<GptContextAttention>(
      "context-attention",
      {{"ring", GptContextAttention::kRing}, {"all_to_all", GptContextAttention::kAllToAll}},
      options.context_attention);
  read_pipeline(given, options);
  read_layout_policy(given,
                     {"mesh", "sharding", "micro-batch-size", "recompute", "sequence-parallel",
                      "pipeline-schedule", "stages-per-rank", "pipeline-cut"},
                     options);
  options.early_stopping = given.integer("early-stopping", kGptCountsOrNone, options.early_stopping);
  options.precision = read_precision(given, options.precision);
  options.cuda_graph = given.is_on("cuda-graph");
  read_learning_rates(given, options);
  options.weight_decay = given.amount("weight-decay", options.weight_decay);
  options.beta2 = given.fraction("beta2", options.beta2);
  options.clip_norm = given.amount("clip-norm", options.clip_norm);
  options.balance_loss = given.amount("balance-loss", options.balance_loss);
  options.router_z_loss = given.amount("router-z-loss", options.router_z_loss);
  if (options.experts == 0) {
    for (const std::string flag : {"balance-loss", "router-z-loss"})
      if (given.has(flag)) given.refuse_together(flag, "expected it with --experts only");
  } else if (options.cuda_graph) {
    given.refuse_together("cuda-graph", "expected it without --experts, whose routing waits for the device");
  }
  options.seed = given.seed("seed", options.seed);
}

void read_samples(const Arguments& given, GptTrainOptions& options) {
  options.sample = text_or_refuse(given, "sample", "", "a text");
  options.sample_tokens = given.integer("sample-tokens", kGptCountsOrNone, options.sample_tokens);
  options.temperature = given.amount("temperature", options.temperature);
  options.top_k = given.integer("top-k", kGptCounts, options.top_k);
  options.top_p = given.positive("top-p", options.top_p);
  if (options.top_p > 1) given.refuse("top-p", "a number above 0, at most 1");
}

}  // namespace

void read_gpt_work(const Arguments& given, GptTrainOptions& options) {
  read_gpt_data(given, options);
  read_gpt_model(given, options);
  read_gpt_training(given, options);
}

GptCommandLine parse_gpt_command_line(const std::vector<std::string>& arguments,
                                      const std::vector<std::string>& strategies) {
  const FlagTable table = gpt_flags(strategies);
  Arguments given = parse_arguments(table, arguments);
  GptCommandLine line{.action = requested_action(given)};
  if (line.action != Action::kTrain) return line;
  complete_arguments(given, table);
  read_strategy(given, strategies, line.options);
  read_gpt_work(given, line.options);
  read_samples(given, line.options);
  read_run(given, line.options);
  line.origins = given.origins();
  if (line.options.fast_dev_run) shorten(line.options);
  return line;
}

}  // namespace lockstep::apps
