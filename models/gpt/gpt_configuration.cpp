#include "lockstep/models/gpt/gpt_configuration.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "lockstep/models/gpt/internal/configuration_fields.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

GptActivation gpt2_activation(const ConfigurationFields& fields) {
  const std::string name = fields.text("activation_function", "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return GptActivation::kGeluTanh;
  if (name == "gelu") return GptActivation::kGelu;
  fields.refuse("activation_function", "gelu_new, gelu_pytorch_tanh or gelu");
}

GptOptions gpt2_options(const ConfigurationFields& fields) {
  fields.require_flag("scale_attn_weights", true);
  fields.require_flag("scale_attn_by_inverse_layer_idx", false);
  fields.require_flag("reorder_and_upcast_attn", false);
  fields.require_flag("add_cross_attention", false);
  return {.vocabulary_size = fields.size("vocab_size"),
          .max_length = fields.size("n_positions"),
          .num_layers = fields.size("n_layer"),
          .num_heads = fields.size("n_head"),
          .width = fields.size("n_embd"),
          .hidden_width = fields.size_or("n_inner", 0),
          .norm_epsilon = fields.number("layer_norm_epsilon", 1e-5),
          .activation = gpt2_activation(fields),
          .has_tied_head = fields.flag("tie_word_embeddings", true),
          .embedding_dropout = fields.number("embd_pdrop", 0.1),
          .attention_dropout = fields.number("attn_pdrop", 0.1),
          .residual_dropout = fields.number("resid_pdrop", 0.1)};
}

/// Reads the object of rope_scaling, or of rope_parameters, which transformers 5 writes.
void read_rotary_scaling(const ConfigurationFields& fields, RotaryOptions& rotary) {
  const char* type_key = fields.has("rope_type") ? "rope_type" : "type";
  const std::string type = fields.text(type_key, "default");
  if (type == "default") return;
  rotary.factor = fields.number("factor", std::nullopt);
  if (type == "linear") {
    rotary.scaling = RotaryScaling::kLinear;
  } else if (type == "llama3") {
    rotary.scaling = RotaryScaling::kLlama3;
    rotary.low_frequency_factor = fields.number("low_freq_factor", std::nullopt);
    rotary.high_frequency_factor = fields.number("high_freq_factor", std::nullopt);
    rotary.original_length = fields.size("original_max_position_embeddings");
  } else {
    fields.refuse(type_key, "default, linear or llama3");
  }
}

RotaryOptions llama_rotary(const ConfigurationFields& fields) {
  RotaryOptions rotary{.theta = fields.number("rope_theta", 10000)};
  if (fields.number("partial_rotary_factor", 1) != 1) fields.refuse("partial_rotary_factor", "1");
  if (fields.has("rope_scaling")) read_rotary_scaling(fields.object("rope_scaling"), rotary);
  if (fields.has("rope_parameters")) {
    const ConfigurationFields parameters = fields.object("rope_parameters");
    rotary.theta = parameters.number("rope_theta", rotary.theta);
    if (parameters.number("partial_rotary_factor", 1) != 1) parameters.refuse("partial_rotary_factor", "1");
    read_rotary_scaling(parameters, rotary);
  }
  return rotary;
}

GptOptions llama_options(const ConfigurationFields& fields) {
  if (fields.text("hidden_act", "silu") != "silu") fields.refuse("hidden_act", "silu");
  return {.vocabulary_size = fields.size("vocab_size"),
          .max_length = fields.size("max_position_embeddings"),
          .num_layers = fields.size("num_hidden_layers"),
          .num_heads = fields.size("num_attention_heads"),
          .num_key_value_heads = fields.size_or("num_key_value_heads", 0),
          .width = fields.size("hidden_size"),
          .head_width = fields.size_or("head_dim", 0),
          .hidden_width = fields.size("intermediate_size"),
          .positions = GptPositions::kRotary,
          .rotary = llama_rotary(fields),
          .norm = GptNorm::kRmsNorm,
          .norm_epsilon = fields.number("rms_norm_eps", 1e-6),
          .activation = GptActivation::kSwiGlu,
          .has_attention_bias = fields.flag("attention_bias", false),
          .has_mlp_bias = fields.flag("mlp_bias", false),
          .has_tied_head = fields.flag("tie_word_embeddings", false),
          .attention_dropout = fields.number("attention_dropout", 0)};
}

ordered_json gpt2_json(const GptOptions& options) {
  const char* activation = options.activation == GptActivation::kGelu ? "gelu" : "gelu_new";
  return {{"model_type", "gpt2"},
          {"architectures", {"GPT2LMHeadModel"}},
          {"vocab_size", options.vocabulary_size},
          {"n_positions", options.max_length},
          {"n_layer", options.num_layers},
          {"n_head", options.num_heads},
          {"n_embd", options.width},
          {"n_inner", options.hidden_width},
          {"activation_function", activation},
          {"layer_norm_epsilon", options.norm_epsilon},
          {"embd_pdrop", options.embedding_dropout},
          {"attn_pdrop", options.attention_dropout},
          {"resid_pdrop", options.residual_dropout}};
}

ordered_json rotary_json(const RotaryOptions& rotary) {
  if (rotary.scaling == RotaryScaling::kNone) return nullptr;
  if (rotary.scaling == RotaryScaling::kLinear) return {{"rope_type", "linear"}, {"factor", rotary.factor}};
  return {{"rope_type", "llama3"},
          {"factor", rotary.factor},
          {"low_freq_factor", rotary.low_frequency_factor},
          {"high_freq_factor", rotary.high_frequency_factor},
          {"original_max_position_embeddings", rotary.original_length}};
}

ordered_json llama_json(const GptOptions& options) {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", options.vocabulary_size},
          {"max_position_embeddings", options.max_length},
          {"num_hidden_layers", options.num_layers},
          {"num_attention_heads", options.num_heads},
          {"num_key_value_heads", options.num_key_value_heads},
          {"hidden_size", options.width},
          {"head_dim", options.head_width},
          {"intermediate_size", options.hidden_width},
          {"hidden_act", "silu"},
          {"rms_norm_eps", options.norm_epsilon},
          {"rope_theta", options.rotary.theta},
          {"rope_scaling", rotary_json(options.rotary)},
          {"attention_bias", options.has_attention_bias},
          {"mlp_bias", options.has_mlp_bias},
          {"attention_dropout", options.attention_dropout}};
}

}  // namespace

GptOptions parse_gpt_configuration(std::string_view text, const std::string& source) {
  const auto json = parse_configuration(text, source);
  const ConfigurationFields fields(json, source);
  const std::string type = fields.text("model_type", "");
  if (type != "gpt2" && type != "llama") fields.refuse("model_type", "gpt2 or llama");
  if (fields.has("quantization_config")) fields.refuse("quantization_config", "no quantization");
  const GptOptions options = type == "gpt2" ? gpt2_options(fields) : llama_options(fields);
  try {
    return complete_gpt_options(options);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("[{}] {}", source, error.what()));
  }
}

GptOptions read_gpt_configuration(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw std::runtime_error(fmt::format("{}: expected a file that can be read", path));
  return parse_gpt_configuration(text.str(), path);
}

std::string gpt_configuration_text(const GptOptions& given) {
  const GptOptions options = complete_gpt_options(given);
  ordered_json json = gpt_family(options) == GptFamily::kGpt2 ? gpt2_json(options) : llama_json(options);
  json["tie_word_embeddings"] = options.has_tied_head;
  return json.dump(2) + "\n";
}

}  // namespace lockstep
