#include "lockstep/apps/train_gpt/options/gpt_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/models/gpt/gpt_configuration.h"
#include "lockstep/models/gpt/gpt_flops.h"
#include "lockstep/models/gpt/gpt_presets.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"

namespace lockstep::apps {
namespace {

constexpr int64_t kLongestDefault = 1024;
constexpr int64_t kLongestWarmup = 500;

/// A size of a model with the flag that sets it.
struct ModelSize {
  const char* flag;
  int64_t GptTrainOptions::*asked;
  int64_t GptOptions::*size;
};

constexpr ModelSize kSizes[] = {
    {"layers", &GptTrainOptions::layers, &GptOptions::num_layers},
    {"hidden", &GptTrainOptions::hidden, &GptOptions::width},
    {"heads", &GptTrainOptions::heads, &GptOptions::num_heads},
    {"kv-heads", &GptTrainOptions::kv_heads, &GptOptions::num_key_value_heads},
    {"mlp-hidden", &GptTrainOptions::mlp_hidden, &GptOptions::hidden_width},
};

GptFamily family_of(const GptOptions& model) {
  return model.positions == GptPositions::kLearned ? GptFamily::kGpt2 : GptFamily::kLlama;
}

void set_family(GptFamily family, GptOptions& model) {
  const bool is_llama = family == GptFamily::kLlama;
  model.positions = is_llama ? GptPositions::kRotary : GptPositions::kLearned;
  model.norm = is_llama ? GptNorm::kRmsNorm : GptNorm::kLayerNorm;
  model.activation = is_llama ? GptActivation::kSwiGlu : GptActivation::kGeluTanh;
  model.has_attention_bias = model.has_mlp_bias = !is_llama;
  model.has_tied_head = !is_llama;
  model.hidden_width = 0;
}

/// Returns the usual width of an MLP: 4 times the model's, or with SwiGLU, which has three matrices instead
/// of two, as many weights in a multiple of 8.
int64_t usual_hidden_width(const GptOptions& model) {
  if (model.activation != GptActivation::kSwiGlu) return 4 * model.width;
  return (8 * model.width / 3 + 7) / 8 * 8;
}

/// Throws UsageError if a flag asks for another size than that of given weights.
void require_sizes_of_weights(const GptTrainOptions& options, const BaseModel& base) {
  const GptOptions model = complete_gpt_options(base.options);
  for (const auto& [flag, asked, size] : kSizes) {
    if (options.*asked == 0 || options.*asked == model.*size) continue;
    throw UsageError(fmt::format("--{} {}: expected the {} of {}, whose weights are loaded", flag,
                                 options.*asked, model.*size, base.name));
  }
  if (options.family && *options.family != family_of(model))
    throw UsageError(fmt::format("--family {}: expected {}, the family of {}",
                                 gpt_family_name(*options.family), gpt_family_name(family_of(model)),
                                 base.name));
  if (options.vocabulary_size != 0 && options.vocabulary_size != model.vocabulary_size)
    throw UsageError(fmt::format("--vocabulary-size {}: expected the {} of {}, whose weights are loaded",
                                 options.vocabulary_size, model.vocabulary_size, base.name));
}

/// Throws UsageError naming the flags if sizes do not fit each other.
void check_sizes(const GptOptions& model) {
  if (model.width % model.num_heads != 0 && model.head_width == 0)
    throw UsageError(
        fmt::format("--heads {}: expected a divisor of the {} of --hidden", model.num_heads, model.width));
  if (model.num_key_value_heads != 0 && model.num_heads % model.num_key_value_heads != 0)
    throw UsageError(fmt::format("--kv-heads {}: expected a divisor of the {} of --heads",
                                 model.num_key_value_heads, model.num_heads));
  try {
    complete_gpt_options(model);
  } catch (const std::invalid_argument& error) {
    throw UsageError(std::string("the model's sizes: ") + error.what());
  }
}

GptOptions with_sizes(const GptTrainOptions& options, GptOptions model) {
  if (options.family && *options.family != family_of(model)) set_family(*options.family, model);
  if (options.hidden != 0 || options.heads != 0) model.head_width = 0;
  if (options.hidden != 0) model.hidden_width = 0;
  if (options.heads != 0) model.num_key_value_heads = 0;
  for (const auto& [flag, asked, size] : kSizes) {
    if (options.*asked != 0) model.*size = options.*asked;
  }
  if (model.hidden_width == 0) model.hidden_width = usual_hidden_width(model);
  return model;
}

BaseModel model_of_file(const GptTrainOptions& options, const std::string& path) {
  BaseModel base{.name = path, .is_fixed = true, .is_of_file = true};
  try {
    base.options = read_gpt_configuration(path);
  } catch (const std::exception& error) {
    throw CheckpointError("--init-weights " + options.init_weights + ": " + error.what());
  }
  if (options.model == kSmallModel) return base;
  const GptOptions asked = complete_gpt_options(gpt_preset(options.model));
  const GptOptions found = complete_gpt_options(base.options);
  for (const auto& [flag, ignored, size] : kSizes) {
    if (asked.*size == found.*size) continue;
    throw UsageError(fmt::format("--model {}: expected a model with --{} {} as {}, but got {}", options.model,
                                 flag, found.*size, path, asked.*size));
  }
  return base;
}

}  // namespace

std::string configuration_of_weights(const std::string& path) {
  if (path.empty()) return "";
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path folder = fs::is_directory(path, ignored) ? fs::path(path) : fs::path(path).parent_path();
  const fs::path configuration = folder / "config.json";
  const bool is_of_weights = fs::is_directory(path, ignored) || path.ends_with(".safetensors");
  // A run directory has a config.json, too, but no weights beside it.
  const bool has_weights =
      fs::exists(folder / "model.safetensors", ignored) || path.ends_with(".safetensors");
  return is_of_weights && has_weights && fs::exists(configuration, ignored) ? configuration.string() : "";
}

BaseModel base_model(const GptTrainOptions& options) {
  if (const std::string path = configuration_of_weights(options.init_weights); !path.empty()) {
    BaseModel base = model_of_file(options, path);
    require_sizes_of_weights(options, base);
    return base;
  }
  // These two stand for no published model.
  const bool is_fixed = options.model != kSmallModel && options.model != "bytes";
  return {.options = gpt_preset(options.model), .name = options.model, .is_fixed = is_fixed};
}

int64_t sequence_length_of(const GptTrainOptions& options, const BaseModel& base) {
  if (options.sequence_length == 0) return std::min(base.options.max_length, kLongestDefault);
  if (base.is_fixed && options.sequence_length > base.options.max_length)
    throw UsageError(fmt::format("--sequence-length {}: expected at most {}, the positions of {}",
                                 options.sequence_length, base.options.max_length, base.name));
  return options.sequence_length;
}

GptOptions model_to_train(const GptTrainOptions& options, const BaseModel& base, int64_t vocabulary_size) {
  GptOptions model = base.is_of_file ? base.options : with_sizes(options, base.options);
  if (!base.is_fixed) {
    model.max_length = sequence_length_of(options, base);
    model.vocabulary_size = vocabulary_size;
  } else if (options.vocabulary_size != 0) {
    model.vocabulary_size = options.vocabulary_size;
  }
  if (vocabulary_size > model.vocabulary_size)
    throw UsageError(fmt::format("--tokenizer{}: expected at most {} tokens, as {} has, but got {}",
                                 options.tokenizer.empty() ? "" : " " + options.tokenizer,
                                 model.vocabulary_size, base.name, vocabulary_size));
  if (options.experts > 0) {
    if (base.is_of_file)
      throw UsageError(
          fmt::format("--experts {}: expected none with the weights of {}, whose layers have one MLP",
                      options.experts, base.name));
    model.num_experts = options.experts;
    model.experts_per_token = options.experts_per_token;
    model.num_shared_experts = options.shared_experts;
    model.expert_capacity_factor = options.expert_capacity;
  }
  model.embedding_dropout = model.attention_dropout = model.residual_dropout = options.dropout;
  check_sizes(model);
  return complete_gpt_options(model);
}

GptPlan make_gpt_plan(const GptTrainOptions& options, const GptOptions& model, int64_t sequence_length,
                      int num_replicas) {
  GptPlan plan{.model = model, .sequence_length = sequence_length};
  if (options.tokens_per_step % sequence_length != 0)
    throw UsageError(fmt::format("--tokens-per-step {}: expected a multiple of the sequence length {}",
                                 options.tokens_per_step, sequence_length));
  plan.global_batch_size =
      options.tokens_per_step > 0 ? options.tokens_per_step / sequence_length : options.global_batch_size;
  if (options.micro_batch_size > 0 && !options.replica_weights.empty()) {
    throw UsageError(
        fmt::format("--micro-batch-size {}: expected it without --replica-weights, whose pieces differ in "
                    "size, but got {}",
                    options.micro_batch_size, options.replica_weights));
  }
  const int64_t largest_shard = (plan.global_batch_size + num_replicas - 1) / num_replicas;
  if (options.micro_batch_size > 0)
    plan.micro_batches = (largest_shard + options.micro_batch_size - 1) / options.micro_batch_size;
  plan.epochs = (options.steps + options.test_every - 1) / options.test_every;
  plan.warmup_steps =
      options.warmup_steps >= 0 ? options.warmup_steps : std::min(options.steps / 10, kLongestWarmup);
  plan.flops_per_token = gpt_training_flops(model, sequence_length);
  return plan;
}

double learning_rate_share(const GptTrainOptions& options, const GptPlan& plan, int64_t step) {
  if (step < plan.warmup_steps) return static_cast<double>(step + 1) / static_cast<double>(plan.warmup_steps);
  if (options.schedule == GptSchedule::kConstant) return 1;
  const double floor = options.final_learning_rate / options.learning_rate;
  const auto done = static_cast<double>(step - plan.warmup_steps);
  const auto all = static_cast<double>(std::max<int64_t>(options.steps - plan.warmup_steps, 1));
  const double share = 0.5 * (1 + std::cos(std::numbers::pi * std::min(done / all, 1.0)));
  return floor + (1 - floor) * share;
}

int64_t steps_of_epoch(const GptTrainOptions& options, const GptPlan& plan, const EpochBegin& begin) {
  const int64_t later_epochs = std::max<int64_t>(plan.epochs - begin.epoch, 0);
  const int64_t left = options.steps - begin.steps_done;
  if (later_epochs == 0) return std::max<int64_t>(left, 1);
  return std::max<int64_t>(std::min(options.test_every, left - later_epochs), 1);
}

}  // namespace lockstep::apps
