#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "lockstep/models/gpt/gpt_options.h"

namespace lockstep {

/// A small model of GPT-2's family.
inline GptOptions small_gpt2() {
  return {.vocabulary_size = 31,
          .max_length = 12,
          .num_layers = 2,
          .num_heads = 3,
          .width = 12,
          .hidden_width = 20,
          .activation = GptActivation::kGeluTanh,
          .has_tied_head = true};
}

/// A small model of Llama's family whose query heads share keys and whose heads are wider than width /
/// num_heads.
inline GptOptions small_llama() {
  return {.vocabulary_size = 31,
          .max_length = 12,
          .num_layers = 2,
          .num_heads = 4,
          .num_key_value_heads = 2,
          .width = 12,
          .head_width = 6,
          .hidden_width = 20,
          .positions = GptPositions::kRotary,
          .rotary = {.theta = 100},
          .norm = GptNorm::kRmsNorm,
          .norm_epsilon = 1e-6,
          .activation = GptActivation::kSwiGlu,
          .has_attention_bias = false,
          .has_mlp_bias = false};
}

struct NamedGpt {
  const char* name;
  GptOptions options;
};

/// Options that take each branch of the model.
inline std::vector<NamedGpt> small_gpts() {
  GptOptions unusual = small_gpt2();
  unusual.activation = GptActivation::kGelu;
  unusual.norm = GptNorm::kRmsNorm;
  unusual.num_key_value_heads = 1;
  unusual.has_tied_head = false;
  unusual.has_mlp_bias = false;
  GptOptions biased = small_llama();
  biased.has_attention_bias = true;
  biased.has_mlp_bias = true;
  biased.has_tied_head = true;
  biased.norm = GptNorm::kLayerNorm;
  return {{"Gpt2", small_gpt2()}, {"Llama", small_llama()}, {"Unusual", unusual}, {"Biased", biased}};
}

inline std::string name_of(const ::testing::TestParamInfo<NamedGpt>& info) {
  return info.param.name;
}

inline void PrintTo(const NamedGpt& gpt, std::ostream* stream) {
  *stream << gpt.name;
}

/// Gives all parameters values of about 1/2, with which every part of the model matters.
template <typename Module>
void spread_parameters(Module& model) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.normal_(0, 0.4);
}

}  // namespace lockstep
