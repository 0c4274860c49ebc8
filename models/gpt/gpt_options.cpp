#include "lockstep/models/gpt/gpt_options.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <string>

namespace lockstep {
namespace {

// Keeps products of sizes out of a file below 2^63.
constexpr int64_t kMaxRows = int64_t{1} << 31;
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxLayers = int64_t{1} << 16;
constexpr int64_t kMaxExperts = int64_t{1} << 12;

template <typename Value>
[[noreturn]] void refuse(const char* option, const std::string& expected, Value given) {
  throw std::invalid_argument(fmt::format("[Gpt] expected {} to be {}, but got {}", option, expected, given));
}

void require_size(const char* option, int64_t given, int64_t largest) {
  if (given < 1 || given > largest) refuse(option, fmt::format("from 1 to {}", largest), given);
}

void require_positive(const char* option, double given) {
  if (!(given > 0) || !std::isfinite(given)) refuse(option, "positive", given);
}

void require_dropout(const char* option, double given) {
  if (!(given >= 0 && given < 1)) refuse(option, "in [0, 1)", given);
}

void require_rotary(const RotaryOptions& rotary, int64_t head_width) {
  if (head_width % 2 != 0) refuse("head_width", "even for rotary positions", head_width);
  require_positive("rotary.theta", rotary.theta);
  if (rotary.scaling == RotaryScaling::kNone) return;
  require_positive("rotary.factor", rotary.factor);
  if (rotary.scaling != RotaryScaling::kLlama3) return;
  require_positive("rotary.low_frequency_factor", rotary.low_frequency_factor);
  if (!(rotary.high_frequency_factor > rotary.low_frequency_factor) ||
      !std::isfinite(rotary.high_frequency_factor)) {
    refuse("rotary.high_frequency_factor",
           fmt::format("above the low_frequency_factor {}", rotary.low_frequency_factor),
           rotary.high_frequency_factor);
  }
  require_size("rotary.original_length", rotary.original_length, kMaxRows);
}

void require_experts(const GptOptions& options) {
  if (options.num_experts == 0) {
    if (options.num_shared_experts != 0)
      refuse("num_shared_experts", "0 without num_experts", options.num_shared_experts);
    return;
  }
  require_size("num_experts", options.num_experts, kMaxExperts);
  if (options.experts_per_token < 1 || options.experts_per_token > options.num_experts) {
    refuse("experts_per_token", fmt::format("from 1 to the num_experts {}", options.num_experts),
           options.experts_per_token);
  }
  if (options.num_shared_experts < 0 || options.num_shared_experts > kMaxExperts)
    refuse("num_shared_experts", fmt::format("from 0 to {}", kMaxExperts), options.num_shared_experts);
  if (options.expert_capacity_factor != 0)
    require_positive("expert_capacity_factor", options.expert_capacity_factor);
}

[[noreturn]] void refuse_family(GptFamily family, const char* what) {
  throw std::invalid_argument(fmt::format("[Gpt] expected options of {}, but got {}",
                                          family == GptFamily::kGpt2
                                              ? "GPT2LMHeadModel, whose positions are learned"
                                              : "LlamaForCausalLM, whose positions are rotary",
                                          what));
}

}  // namespace

GptOptions complete_gpt_options(GptOptions options) {
  require_size("vocabulary_size", options.vocabulary_size, kMaxRows);
  require_size("max_length", options.max_length, kMaxRows);
  require_size("num_layers", options.num_layers, kMaxLayers);
  require_size("width", options.width, kMaxWidth);
  require_size("num_heads", options.num_heads, kMaxWidth);
  if (options.num_key_value_heads == 0) options.num_key_value_heads = options.num_heads;
  if (options.num_key_value_heads < 1 || options.num_heads % options.num_key_value_heads != 0) {
    refuse("num_key_value_heads", fmt::format("a divisor of num_heads {}", options.num_heads),
           options.num_key_value_heads);
  }
  if (options.head_width == 0) {
    if (options.width % options.num_heads != 0)
      refuse("width", fmt::format("a multiple of num_heads {}", options.num_heads), options.width);
    options.head_width = options.width / options.num_heads;
  }
  require_size("head_width", options.head_width, kMaxWidth);
  require_size("num_heads * head_width", options.num_heads * options.head_width, kMaxWidth);
  if (options.hidden_width == 0) options.hidden_width = 4 * options.width;
  require_size("hidden_width", options.hidden_width, 4 * kMaxWidth);
  require_experts(options);
  if (options.positions == GptPositions::kRotary) require_rotary(options.rotary, options.head_width);
  require_positive("norm_epsilon", options.norm_epsilon);
  require_dropout("embedding_dropout", options.embedding_dropout);
  require_dropout("attention_dropout", options.attention_dropout);
  require_dropout("residual_dropout", options.residual_dropout);
  return options;
}

int64_t num_gpt_parameters(const GptOptions& given) {
  const GptOptions options = complete_gpt_options(given);
  const int64_t width = options.width;
  const int64_t hidden = options.hidden_width;
  const int64_t norm = options.norm == GptNorm::kLayerNorm ? 2 * width : width;
  const int64_t queries = options.num_heads * options.head_width;
  const int64_t rows = queries + 2 * options.num_key_value_heads * options.head_width;
  const int64_t attention = (rows + queries) * width + (options.has_attention_bias ? rows + width : 0);
  const int64_t into_hidden = options.activation == GptActivation::kSwiGlu ? 2 : 1;
  const auto mlp_of = [&](int64_t hidden_width) {
    return (into_hidden + 1) * hidden_width * width +
           (options.has_mlp_bias ? into_hidden * hidden_width + width : 0);
  };
  int64_t mlp = mlp_of(hidden);
  if (options.num_experts > 0) {
    mlp = options.num_experts * (mlp + width);  // with the router's row
    if (options.num_shared_experts > 0) mlp += mlp_of(options.num_shared_experts * hidden);
  }
  const int64_t tables = options.vocabulary_size * (options.has_tied_head ? 1 : 2) +
                         (options.positions == GptPositions::kLearned ? options.max_length : 0);
  return tables * width + options.num_layers * (2 * norm + attention + mlp) + norm;
}

GptFamily gpt_family(const GptOptions& given) {
  const GptOptions options = complete_gpt_options(given);
  const bool has_swiglu = options.activation == GptActivation::kSwiGlu;
  if (options.num_experts > 0) {
    refuse_family(options.positions == GptPositions::kRotary ? GptFamily::kLlama : GptFamily::kGpt2,
                  "a mixture of experts");
  }
  if (options.positions == GptPositions::kRotary) {
    if (options.norm != GptNorm::kRmsNorm) refuse_family(GptFamily::kLlama, "LayerNorm");
    if (!has_swiglu) refuse_family(GptFamily::kLlama, "GELU");
    return GptFamily::kLlama;
  }
  if (options.norm != GptNorm::kLayerNorm) refuse_family(GptFamily::kGpt2, "RMSNorm");
  if (has_swiglu) refuse_family(GptFamily::kGpt2, "SwiGLU");
  if (!options.has_attention_bias || !options.has_mlp_bias)
    refuse_family(GptFamily::kGpt2, "layers without biases");
  if (options.num_key_value_heads != options.num_heads)
    refuse_family(GptFamily::kGpt2, "fewer heads of keys and values than of queries");
  if (options.num_heads * options.head_width != options.width)
    refuse_family(GptFamily::kGpt2, "a head_width other than width / num_heads");
  return GptFamily::kGpt2;
}

}  // namespace lockstep
