#include "lockstep/models/gpt/internal/weight_files.h"

#include <fmt/format.h>

#include <utility>

namespace lockstep {
namespace {

/// Collects the places of one model.
class Places {
 public:
  void add(const std::string& own, const std::string& file, bool has_bias, std::vector<FileTensor> weights,
           bool is_transposed = false) {
    std::vector<FileTensor> biases;
    biases.reserve(weights.size());
    for (auto& weight : weights) {
      const int64_t outputs = weight.shape[is_transposed ? 1 : 0];
      const std::string layer = weight.name.empty() ? file : file + "." + weight.name;
      weight.name = layer + ".weight";
      biases.push_back({.name = layer + ".bias", .shape = {outputs}});
    }
    places_.push_back(
        {.own_name = own + ".weight", .parts = std::move(weights), .is_transposed = is_transposed});
    if (has_bias) places_.push_back({.own_name = own + ".bias", .parts = std::move(biases)});
  }

  std::vector<WeightPlace> take() { return std::move(places_); }

 private:
  std::vector<WeightPlace> places_;
};

void add_gpt2_block(const GptOptions& options, int64_t layer, Places& places) {
  const std::string own = fmt::format("blocks.{}.", layer);
  const std::string file = fmt::format("{}h.{}.", kGpt2Prefix, layer);
  const int64_t width = options.width;
  const int64_t hidden = options.hidden_width;
  places.add(own + "attention_norm", file + "ln_1", true, {{"", {width}}});
  places.add(own + "qkv", file + "attn.c_attn", true, {{"", {width, 3 * width}}}, true);
  places.add(own + "attention_output", file + "attn.c_proj", true, {{"", {width, width}}}, true);
  places.add(own + "mlp_norm", file + "ln_2", true, {{"", {width}}});
  places.add(own + "up", file + "mlp.c_fc", true, {{"", {width, hidden}}}, true);
  places.add(own + "down", file + "mlp.c_proj", true, {{"", {hidden, width}}}, true);
}

void add_llama_block(const GptOptions& options, int64_t layer, Places& places) {
  const std::string own = fmt::format("blocks.{}.", layer);
  const std::string file = fmt::format("model.layers.{}.", layer);
  const int64_t width = options.width;
  const int64_t hidden = options.hidden_width;
  const int64_t queries = options.num_heads * options.head_width;
  const int64_t keys = options.num_key_value_heads * options.head_width;
  const bool in_attention = options.has_attention_bias;
  const bool in_mlp = options.has_mlp_bias;
  places.add(own + "attention_norm", file + "input_layernorm", false, {{"", {width}}});
  places.add(own + "qkv", file + "self_attn", in_attention,
             {{"q_proj", {queries, width}}, {"k_proj", {keys, width}}, {"v_proj", {keys, width}}});
  places.add(own + "attention_output", file + "self_attn.o_proj", in_attention, {{"", {width, queries}}});
  places.add(own + "mlp_norm", file + "post_attention_layernorm", false, {{"", {width}}});
  places.add(own + "gate", file + "mlp.gate_proj", in_mlp, {{"", {hidden, width}}});
  places.add(own + "up", file + "mlp.up_proj", in_mlp, {{"", {hidden, width}}});
  places.add(own + "down", file + "mlp.down_proj", in_mlp, {{"", {width, hidden}}});
}

bool is_digits_then(const std::string& text, size_t begin, const std::string& end) {
  const size_t after = text.find_first_not_of("0123456789", begin);
  return after != begin && after != std::string::npos && text.substr(after) == end;
}

}  // namespace

std::string tokens_name(GptFamily family) {
  return family == GptFamily::kGpt2 ? std::string(kGpt2Prefix) + "wte.weight" : "model.embed_tokens.weight";
}

std::vector<WeightPlace> weight_places(const GptOptions& options, GptFamily family) {
  const bool is_gpt2 = family == GptFamily::kGpt2;
  const std::string prefix = is_gpt2 ? kGpt2Prefix : "model.";
  const std::vector<FileTensor> table = {{"", {options.vocabulary_size, options.width}}};
  Places places;
  places.add("tokens", prefix + (is_gpt2 ? "wte" : "embed_tokens"), false, table);
  if (is_gpt2) places.add("positions", prefix + "wpe", false, {{"", {options.max_length, options.width}}});
  for (int64_t layer = 0; layer < options.num_layers; ++layer)
    (is_gpt2 ? add_gpt2_block : add_llama_block)(options, layer, places);
  places.add("norm", prefix + (is_gpt2 ? "ln_f" : "norm"), is_gpt2, {{"", {options.width}}});
  if (!options.has_tied_head) places.add("head", "lm_head", false, table);
  return places.take();
}

bool is_saved_constant(const std::string& name, GptFamily family) {
  const std::string before = family == GptFamily::kGpt2 ? std::string(kGpt2Prefix) + "h." : "model.layers.";
  if (!name.starts_with(before)) return false;
  if (family == GptFamily::kLlama)
    return is_digits_then(name, before.size(), ".self_attn.rotary_emb.inv_freq");
  return is_digits_then(name, before.size(), ".attn.bias") ||
         is_digits_then(name, before.size(), ".attn.masked_bias");
}

}  // namespace lockstep
