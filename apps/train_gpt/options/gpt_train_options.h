#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/shared/planning/layout_policy.h"
#include "lockstep/apps/shared/precision/precision_kind.h"
#include "lockstep/apps/shared/session/run_choice.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_choice.h"
#include "lockstep/apps/shared/strategy_choice/strategy_choice.h"
#include "lockstep/datasets/tokens/generated_language_options.h"
#include "lockstep/datasets/tokens/token_format.h"
#include "lockstep/models/gpt/gpt_options.h"

namespace lockstep::apps {

enum class GptSchedule { kCosine, kConstant };
enum class GptRecompute { kNothing, kEveryBlock };
/// The way in which ranks compute attention between their tokens, see ContextMethod.
enum class GptContextAttention { kRing, kAllToAll };

/// Return the spelling used in flags and printed configurations.
std::string gpt_schedule_name(GptSchedule schedule);
std::string gpt_recompute_name(GptRecompute recompute);
std::string gpt_context_attention_name(GptContextAttention attention);
std::string gpt_family_name(GptFamily family);
std::string token_format_name(TokenFormat format);

/// The model that is trained if --model is not given.
inline constexpr const char* kSmallModel = "small";

/// The recipe by which it learns the generated language in minutes, see docs/text_data.md.
inline constexpr int64_t kDefaultSteps = 500;
inline constexpr int64_t kDefaultTestEvery = 50;

/// The model, the data and how to train; the fields that a checkpoint must agree with.
/// gpt_help_text() explains the flags. 0 and empty stand for values that GptPlan decides.
struct GptTrainOptions : StrategyChoice, PipelineChoice, LayoutPolicyChoice, RunChoice {
  std::vector<std::string> data{"generated"};  ///< "generated", or files, folders and patterns
  std::vector<std::string> test_data;          ///< likewise; empty: the last sequences of `data`
  /// Names and facts of the generated language, see GeneratedLanguageOptions. 0: it has none.
  int64_t fact_names = 0;
  double fact_share = GeneratedLanguageOptions{}.fact_share;
  double test_share = 0.1;  ///< share of the sequences of `data` to test on if test_data is empty
  int64_t limit_train = 0;  ///< maximum number of sequences; 0: all, or as many as the steps take
  int64_t limit_test = 256;
  std::string tokenizer;  ///< as open_tokenizer() takes it; empty: bytes for text, none for token files
  std::string json_field = "text";
  TokenFormat token_format = TokenFormat::kAuto;
  std::string parquet_column;           ///< empty: the one that the files have of input_ids, tokens and text
  std::string parquet_memory = "1GiB";  ///< ParquetTokensOptions::memory_limit
  int64_t vocabulary_size = 0;          ///< 0: that of the tokenizer or of the model
  std::string token_cache;              ///< TokenFilesOptions::cache_folder
  int64_t shuffle_window = 0;

  std::string model = kSmallModel;  ///< a name of gpt_preset()
  std::optional<GptFamily> family;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t mlp_hidden = 0;
  int64_t experts = 0;  ///< in each layer; 0: one MLP
  int64_t experts_per_token = 2;
  int64_t shared_experts = 0;
  double expert_capacity = 0;  ///< GptOptions::expert_capacity_factor
  int64_t sequence_length = 0;
  double dropout = 0;        ///< of embeddings, attention and residuals
  std::string init_weights;  ///< folder or file of initial weights; empty: none

  int64_t steps = kDefaultSteps;
  int64_t test_every = kDefaultTestEvery;  ///< steps between tests
  int64_t global_batch_size = 32;
  int64_t tokens_per_step = 0;   ///< if not 0, overrides global_batch_size
  int64_t micro_batch_size = 0;  ///< sequences that a replica computes at once; 0: all of a step
  GptRecompute recompute = GptRecompute::kNothing;
  bool sequence_parallel =
      false;  ///< each rank of the axis tensor has a shard of the sequence between cut layers
  GptContextAttention context_attention = GptContextAttention::kRing;  ///< along a context axis
  int64_t early_stopping = 0;  ///< stop after this many tests without a better loss; 0: never
  PrecisionKind precision = PrecisionKind::kFloat32;
  bool cuda_graph = false;
  GptSchedule schedule = GptSchedule::kCosine;
  double learning_rate = 0.003;
  double final_learning_rate = 0;  ///< at the end of the cosine
  int64_t warmup_steps = -1;       ///< -1: a tenth of the steps, at most 500
  double weight_decay = 0.1;
  double beta2 = 0.95;
  double clip_norm = 1;          ///< 0: no limit
  double balance_loss = 0.01;    ///< factor of the experts' balance loss
  double router_z_loss = 0.001;  ///< factor of the routers' z-loss
  uint64_t seed = 1;

  std::string sample;  ///< text to continue; empty: texts from their beginning
  int64_t sample_tokens = 100;
  double temperature = 0.8;
  int64_t top_k = 0;
  double top_p = 1;

  bool operator==(const GptTrainOptions&) const = default;
};

/// Returns whether the text is drawn instead of read.
bool is_generated(const GptTrainOptions& options);

/// Returns the language whose text is drawn.
GeneratedLanguageOptions language_of(const GptTrainOptions& options);

/// Changes the options into those of a fast development run: a few steps, a test, and every callback.
void shorten(GptTrainOptions& options);

}  // namespace lockstep::apps
