#include "lockstep/models/gpt/gpt_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/tests/models/gpt/small_gpts.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<std::string> names_of(const GptWeights& tensors) {
  std::vector<std::string> names;
  for (const auto& item : tensors) names.push_back(item.first);
  return names;
}

torch::Tensor& find_tensor(GptWeights& tensors, const std::string& name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& item) { return item.first == name; });
  EXPECT_NE(found, tensors.end()) << name;
  return found->second;
}

Gpt other_gpt(const GptOptions& options) {
  Gpt model(options);
  spread_parameters(model);
  return model;
}

void expect_same_parameters(const Gpt& given, const Gpt& expected) {
  const auto parameters = given->named_parameters();
  for (const auto& item : expected->named_parameters())
    EXPECT_TRUE(item.value().equal(parameters[item.key()])) << item.key();
}

void expect_weights_refused(const GptOptions& options, const GptWeights& tensors,
                            const std::string& message) {
  Gpt model = other_gpt(options);
  const auto before = model->parameters()[0].clone();
  EXPECT_THAT([&] { load_gpt_weights(model, tensors, "model.safetensors"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("model.safetensors: tensor '" + message)));
  EXPECT_TRUE(model->parameters()[0].equal(before));
}

TEST(GptWeightsTest, HaveTheNamesOfGpt2) {
  GptOptions options = small_gpt2();
  options.num_layers = 1;
  EXPECT_EQ(names_of(gpt_weights_for_file(other_gpt(options))),
            (std::vector<std::string>{
                "transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.ln_1.weight",
                "transformer.h.0.ln_1.bias", "transformer.h.0.attn.c_attn.weight",
                "transformer.h.0.attn.c_attn.bias", "transformer.h.0.attn.c_proj.weight",
                "transformer.h.0.attn.c_proj.bias", "transformer.h.0.ln_2.weight",
                "transformer.h.0.ln_2.bias", "transformer.h.0.mlp.c_fc.weight",
                "transformer.h.0.mlp.c_fc.bias", "transformer.h.0.mlp.c_proj.weight",
                "transformer.h.0.mlp.c_proj.bias", "transformer.ln_f.weight", "transformer.ln_f.bias"}));
}

TEST(GptWeightsTest, HaveTheNamesOfLlama) {
  GptOptions options = small_llama();
  options.num_layers = 1;
  auto tensors = gpt_weights_for_file(other_gpt(options));
  EXPECT_EQ(names_of(tensors),
            (std::vector<std::string>{
                "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
                "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
                "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.o_proj.weight",
                "model.layers.0.post_attention_layernorm.weight", "model.layers.0.mlp.gate_proj.weight",
                "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight",
                "model.norm.weight", "lm_head.weight"}));
  EXPECT_EQ(find_tensor(tensors, "model.layers.0.self_attn.q_proj.weight").sizes(),
            (torch::IntArrayRef{24, 12}));
  EXPECT_EQ(find_tensor(tensors, "model.layers.0.self_attn.v_proj.weight").sizes(),
            (torch::IntArrayRef{12, 12}));
}

TEST(GptWeightsTest, GoToAFileAndBack) {
  GptOptions biased = small_llama();
  biased.has_attention_bias = true;
  biased.has_mlp_bias = true;
  GptOptions untied = small_gpt2();
  untied.has_tied_head = false;
  for (const auto& options : {small_gpt2(), untied, small_llama(), biased}) {
    const Gpt saved = other_gpt(options);
    Gpt loaded = other_gpt(options);
    load_gpt_weights(loaded, gpt_weights_for_file(saved));
    expect_same_parameters(loaded, saved);
  }
}

TEST(GptWeightsTest, NamesOfGpt2WithoutThePrefixAreRead) {
  const Gpt saved = other_gpt(small_gpt2());
  auto tensors = gpt_weights_for_file(saved);
  for (auto& item : tensors) item.first = item.first.substr(std::string("transformer.").size());
  // The masks of the hub's file.
  tensors.emplace_back("h.0.attn.bias", torch::ones({1, 1, 12, 12}));
  tensors.emplace_back("h.1.attn.masked_bias", torch::tensor(-1e4));
  Gpt loaded = other_gpt(small_gpt2());
  load_gpt_weights(loaded, tensors);
  expect_same_parameters(loaded, saved);
  find_tensor(tensors, "wte.weight") = torch::ones({3, 12});
  expect_weights_refused(small_gpt2(), tensors, "wte.weight': expected [31, 12], but got [3, 12]");
}

TEST(GptWeightsTest, SavedFrequenciesOfLlamaAreLeftOut) {
  auto tensors = gpt_weights_for_file(other_gpt(small_llama()));
  tensors.emplace_back("model.layers.1.self_attn.rotary_emb.inv_freq", torch::ones({3}));
  Gpt loaded = other_gpt(small_llama());
  EXPECT_NO_THROW(load_gpt_weights(loaded, tensors));
}

TEST(GptWeightsTest, ATiedHeadInTheFileMustEqualTheEmbeddings) {
  auto tensors = gpt_weights_for_file(other_gpt(small_gpt2()));
  tensors.emplace_back("lm_head.weight", find_tensor(tensors, "transformer.wte.weight").clone());
  Gpt loaded = other_gpt(small_gpt2());
  EXPECT_NO_THROW(load_gpt_weights(loaded, tensors));
  tensors.back().second[0][0] += 1;
  expect_weights_refused(
      small_gpt2(), tensors,
      "lm_head.weight': expected the values of 'transformer.wte.weight', as has_tied_head says, but got "
      "others");
}

TEST(GptWeightsTest, TensorsOfAnotherConfigurationAreNamedWithBothShapes) {
  GptOptions wider = small_gpt2();
  wider.hidden_width = 24;
  expect_weights_refused(wider, gpt_weights_for_file(other_gpt(small_gpt2())),
                         "transformer.h.0.mlp.c_fc.weight': expected [12, 24], but got [12, 20]");
  GptOptions deeper = small_llama();
  deeper.num_layers = 3;
  expect_weights_refused(deeper, gpt_weights_for_file(other_gpt(small_llama())),
                         "model.layers.2.input_layernorm.weight': expected [12], but got no such tensor");
  expect_weights_refused(small_llama(), gpt_weights_for_file(other_gpt(deeper)),
                         "model.layers.2.input_layernorm.weight': expected no such tensor, but got [12]");
  GptOptions untied = small_gpt2();
  untied.has_tied_head = false;
  expect_weights_refused(untied, gpt_weights_for_file(other_gpt(small_gpt2())),
                         "lm_head.weight': expected [31, 12], but got no such tensor");
  expect_weights_refused(small_llama(), gpt_weights_for_file(other_gpt(small_gpt2())),
                         "model.embed_tokens.weight': expected [31, 12], but got no such tensor");
  auto tensors = gpt_weights_for_file(other_gpt(small_llama()));
  find_tensor(tensors, "model.norm.weight") = torch::ones({12}, torch::kInt);
  expect_weights_refused(small_llama(), tensors,
                         "model.norm.weight': expected floating-point numbers, but got Int");
}

TEST(GptWeightsTest, AModelOfNeitherFamilyIsRefused) {
  GptOptions options = small_gpt2();
  options.norm = GptNorm::kRmsNorm;
  const Gpt model = other_gpt(options);
  EXPECT_THAT([&] { gpt_weights_for_file(model); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("but got RMSNorm")));
}

}  // namespace
}  // namespace lockstep
