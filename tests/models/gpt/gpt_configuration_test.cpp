#include "lockstep/models/gpt/gpt_configuration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "lockstep/models/gpt/gpt_presets.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// As in the repository of gpt2, without what does not matter.
constexpr const char* kGpt2 = R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
  "n_positions": 1024, "resid_pdrop": 0.1, "task_specific_params": {"text-generation": {"do_sample": true}},
  "vocab_size": 50257})";
/// As in the repository of Llama 3.2 1B.
constexpr const char* kLlama = R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0,
  "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 128256})";

/// Two configurations are the same if their texts are.
void expect_same(const GptOptions& given, const GptOptions& expected) {
  EXPECT_EQ(gpt_configuration_text(given), gpt_configuration_text(expected));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return text.replace(place, from.size(), to);
}

void expect_text_refused(const std::string& text, const std::string& message) {
  EXPECT_THAT([&] { parse_gpt_configuration(text, "model/config.json"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("[model/config.json" + message)));
}

TEST(GptConfigurationTest, ThePublishedFilesGiveThePresets) {
  expect_same(parse_gpt_configuration(kGpt2), gpt_preset("gpt2"));
  expect_same(parse_gpt_configuration(kLlama), gpt_preset("llama-3.2-1b"));
}

TEST(GptConfigurationTest, TextsOfAllPresetsAreReadBack) {
  for (const auto& name : gpt_preset_names()) {
    const GptOptions options = gpt_preset(name);
    const GptOptions read = parse_gpt_configuration(gpt_configuration_text(options));
    expect_same(read, options);
    EXPECT_EQ(num_gpt_parameters(read), num_gpt_parameters(options)) << name;
    EXPECT_EQ(read.rotary.scaling, options.rotary.scaling) << name;
    EXPECT_EQ(read.residual_dropout, options.residual_dropout) << name;
  }
}

TEST(GptConfigurationTest, ReadsRotaryPositionsAsTransformers5WritesThem) {
  auto text = replaced(kLlama, "\"rope_theta\": 500000.0,", "");
  text = replaced(text, "\"rope_scaling\": {", "\"rope_parameters\": {\"rope_theta\": 7.5, ");
  const GptOptions options = parse_gpt_configuration(text);
  EXPECT_EQ(options.rotary.theta, 7.5);
  EXPECT_EQ(options.rotary.scaling, RotaryScaling::kLlama3);
  EXPECT_EQ(options.rotary.factor, 32);
}

TEST(GptConfigurationTest, ReadsLinearScalingByEitherName) {
  for (const char* key : {"type", "rope_type"}) {
    auto text = replaced(kLlama, "\"rope_type\": \"llama3\"", "\"" + std::string(key) + "\": \"linear\"");
    EXPECT_EQ(parse_gpt_configuration(text).rotary.scaling, RotaryScaling::kLinear);
  }
}

TEST(GptConfigurationTest, MissingFieldsHaveTheDefaultsOfTransformers) {
  const GptOptions gpt2 = parse_gpt_configuration(
      R"({"model_type": "gpt2", "vocab_size": 9, "n_positions": 8, "n_layer": 1, "n_head": 2, "n_embd": 4})");
  EXPECT_TRUE(gpt2.has_tied_head);
  EXPECT_EQ(gpt2.hidden_width, 16);
  EXPECT_EQ(gpt2.attention_dropout, 0.1);
  const GptOptions llama = parse_gpt_configuration(
      R"({"model_type": "llama", "vocab_size": 9, "max_position_embeddings": 8, "num_hidden_layers": 1,
          "num_attention_heads": 2, "hidden_size": 4, "intermediate_size": 5, "num_key_value_heads": null})");
  EXPECT_FALSE(llama.has_tied_head);
  EXPECT_EQ(llama.num_key_value_heads, 2);
  EXPECT_EQ(llama.rotary.theta, 10000);
  EXPECT_EQ(llama.norm_epsilon, 1e-6);
}

TEST(GptConfigurationTest, FieldsThatAreNotSupportedAreNamed) {
  expect_text_refused(replaced(kGpt2, "\"gpt2\"", "\"bert\""),
                      "] model_type: expected gpt2 or llama, but got \"bert\"");
  expect_text_refused(
      replaced(kGpt2, "\"gelu_new\"", "\"relu\""),
      "] activation_function: expected gelu_new, gelu_pytorch_tanh or gelu, but got \"relu\"");
  for (const char* field :
       {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"}) {
    expect_text_refused(replaced(kGpt2, "{", "{\"" + std::string(field) + "\": true, "),
                        "] " + std::string(field) + ": expected false, but got true");
  }
  expect_text_refused(replaced(kGpt2, "{", "{\"scale_attn_weights\": false, "),
                      "] scale_attn_weights: expected true");
  expect_text_refused(replaced(kLlama, "\"silu\"", "\"gelu\""),
                      "] hidden_act: expected silu, but got \"gelu\"");
  expect_text_refused(replaced(kLlama, "\"llama3\"", "\"yarn\""),
                      ", rope_scaling] rope_type: expected default, linear or llama3, but got \"yarn\"");
  expect_text_refused(replaced(kLlama, "{", "{\"quantization_config\": {\"bits\": 4}, "),
                      "] quantization_config: expected no quantization");
  expect_text_refused(replaced(kLlama, "{", "{\"partial_rotary_factor\": 0.5, "),
                      "] partial_rotary_factor: expected 1");
}

TEST(GptConfigurationTest, FieldsOfAnotherTypeAreNamed) {
  expect_text_refused(replaced(kGpt2, "\"n_layer\": 12", "\"n_layer\": 1.5"),
                      "] n_layer: expected an integer of 1 or more, but got 1.5");
  expect_text_refused(replaced(kGpt2, "\"n_layer\": 12,", ""),
                      "] n_layer: expected an integer of 1 or more, but got none");
  expect_text_refused(replaced(kGpt2, "\"n_layer\": 12", "\"n_layer\": 18446744073709551615"),
                      "] n_layer: expected");
  expect_text_refused(replaced(kGpt2, "0.1", "\"0.1\""), "] attn_pdrop: expected a number, but got \"0.1\"");
  expect_text_refused(replaced(kLlama, "\"attention_bias\": false", "\"attention_bias\": 0"),
                      "] attention_bias: expected true or false, but got 0");
  expect_text_refused(replaced(kLlama, "\"silu\"", "7"), "] hidden_act: expected a string, but got 7");
  expect_text_refused(replaced(kLlama, "\"n", "\"rope_parameters\": 3, \"n"),
                      "] rope_parameters: expected an object");
}

TEST(GptConfigurationTest, SizesThatDoNotFitAreNamedByTheOption) {
  expect_text_refused(replaced(kGpt2, "\"n_head\": 12", "\"n_head\": 13"),
                      "] [Gpt] expected width to be a multiple of num_heads 13, but got 768");
}

TEST(GptConfigurationTest, OtherTextsAreRefused) {
  expect_text_refused("", "] expected JSON");
  expect_text_refused("{\"model_type\": ", "] expected JSON");
  expect_text_refused("[1]", "] expected an object, but got [1]");
  expect_text_refused(R"({"n_head": 1, "n_head": 2})", "] \"n_head\": expected one value, but got two");
  expect_text_refused("{\"a\": " + std::string(20, '[') + std::string(20, ']') + "}",
                      "] expected at most 16 levels");
  expect_text_refused(std::string((size_t{1} << 20) + 1, ' '), "] expected at most 1048576 bytes");
}

TEST(GptConfigurationTest, AFileThatCannotBeReadIsNamed) {
  EXPECT_THAT([] { read_gpt_configuration("/absent/config.json"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("/absent/config.json: expected a file")));
}

}  // namespace
}  // namespace lockstep
