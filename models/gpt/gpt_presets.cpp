#include "lockstep/models/gpt/gpt_presets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <stdexcept>
#include <utility>

namespace lockstep {
namespace {

struct Gpt2Size {
  int64_t layers;
  int64_t heads;
  int64_t width;
};

GptOptions gpt2(const Gpt2Size& size) {
  return {.vocabulary_size = 50257,
          .max_length = 1024,
          .num_layers = size.layers,
          .num_heads = size.heads,
          .width = size.width,
          .activation = GptActivation::kGeluTanh,
          .has_tied_head = true,
          .embedding_dropout = 0.1,
          .attention_dropout = 0.1,
          .residual_dropout = 0.1};
}

/// A Llama with the sizes and rotary positions of `sizes`.
GptOptions llama(GptOptions sizes) {
  sizes.positions = GptPositions::kRotary;
  sizes.norm = GptNorm::kRmsNorm;
  sizes.activation = GptActivation::kSwiGlu;
  sizes.has_attention_bias = false;
  sizes.has_mlp_bias = false;
  return sizes;
}

RotaryOptions llama3_rotary(double factor) {
  return {.theta = 500000, .scaling = RotaryScaling::kLlama3, .factor = factor};
}

/// Its positions are rotary because a model of this size hardly learns from learned ones, in minutes, which
/// words far back a token agrees with. Shorter sequences have it learn that sooner than longer ones.
GptOptions small() {
  return llama({.vocabulary_size = 78,
                .max_length = 128,
                .num_layers = 2,
                .num_heads = 4,
                .width = 128,
                .hidden_width = 344});
}

GptOptions smollm2_135m() {
  return llama({.vocabulary_size = 49152,
                .max_length = 8192,
                .num_layers = 30,
                .num_heads = 9,
                .num_key_value_heads = 3,
                .width = 576,
                .hidden_width = 1536,
                .rotary = {.theta = 100000},
                .has_tied_head = true});
}

GptOptions tinyllama() {
  return llama({.vocabulary_size = 32000,
                .max_length = 2048,
                .num_layers = 22,
                .num_heads = 32,
                .num_key_value_heads = 4,
                .width = 2048,
                .hidden_width = 5632});
}

GptOptions llama2_7b() {
  return llama({.vocabulary_size = 32000,
                .max_length = 4096,
                .num_layers = 32,
                .num_heads = 32,
                .width = 4096,
                .hidden_width = 11008});
}

GptOptions llama31_8b() {
  return llama({.vocabulary_size = 128256,
                .max_length = 131072,
                .num_layers = 32,
                .num_heads = 32,
                .num_key_value_heads = 8,
                .width = 4096,
                .hidden_width = 14336,
                .rotary = llama3_rotary(8)});
}

GptOptions llama32_1b() {
  return llama({.vocabulary_size = 128256,
                .max_length = 131072,
                .num_layers = 16,
                .num_heads = 32,
                .num_key_value_heads = 8,
                .width = 2048,
                .hidden_width = 8192,
                .rotary = llama3_rotary(32),
                .has_tied_head = true});
}

using Preset = std::pair<const char*, GptOptions (*)()>;

constexpr std::array<Preset, 11> kPresets = {{
    {"bytes", [] { return GptOptions{}; }},
    {"small", small},
    {"gpt2", [] { return gpt2({.layers = 12, .heads = 12, .width = 768}); }},
    {"gpt2-medium", [] { return gpt2({.layers = 24, .heads = 16, .width = 1024}); }},
    {"gpt2-large", [] { return gpt2({.layers = 36, .heads = 20, .width = 1280}); }},
    {"gpt2-xl", [] { return gpt2({.layers = 48, .heads = 25, .width = 1600}); }},
    {"smollm2-135m", smollm2_135m},
    {"tinyllama-1.1b", tinyllama},
    {"llama-2-7b", llama2_7b},
    {"llama-3.1-8b", llama31_8b},
    {"llama-3.2-1b", llama32_1b},
}};

}  // namespace

GptOptions gpt_preset(const std::string& name) {
  for (const auto& [candidate, make] : kPresets)
    if (name == candidate) return make();
  throw std::invalid_argument(
      fmt::format("[gpt_preset] expected {}, but got '{}'", fmt::join(gpt_preset_names(), ", "), name));
}

std::vector<std::string> gpt_preset_names() {
  std::vector<std::string> names;
  names.reserve(kPresets.size());
  for (const auto& preset : kPresets) names.emplace_back(preset.first);
  return names;
}

}  // namespace lockstep
