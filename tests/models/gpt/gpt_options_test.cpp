#include "lockstep/models/gpt/gpt_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/gpt/gpt_presets.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(GptPresetsTest, HaveAsManyParametersAsThePublishedModels) {
  // The counts that transformers reports for these models.
  const std::vector<std::pair<std::string, int64_t>> published = {
      {"gpt2", 124'439'808},         {"gpt2-medium", 354'823'168},    {"gpt2-large", 774'030'080},
      {"gpt2-xl", 1'557'611'200},    {"smollm2-135m", 134'515'008},   {"tinyllama-1.1b", 1'100'048'384},
      {"llama-2-7b", 6'738'415'616}, {"llama-3.1-8b", 8'030'261'248}, {"llama-3.2-1b", 1'235'814'400},
  };
  for (const auto& [name, count] : published) EXPECT_EQ(num_gpt_parameters(gpt_preset(name)), count) << name;
}

TEST(GptPresetsTest, AreOfTheirFamilies) {
  for (const auto& name : gpt_preset_names()) {
    const bool is_llama =
        name == "small" || name.find("llama") != std::string::npos || name.starts_with("smollm");
    EXPECT_EQ(gpt_family(gpt_preset(name)), is_llama ? GptFamily::kLlama : GptFamily::kGpt2) << name;
  }
}

TEST(GptPresetsTest, OtherNamesAreRefusedWithTheList) {
  EXPECT_THAT([] { gpt_preset("gpt3"); },
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("expected bytes, small, gpt2, gpt2-medium, gpt2-large, gpt2-xl, smollm2-135m, "
                            "tinyllama-1.1b, llama-2-7b, llama-3.1-8b, llama-3.2-1b, but got 'gpt3'")));
}

TEST(GptOptionsTest, ZerosStandForValues) {
  const GptOptions options = complete_gpt_options({.num_heads = 4, .width = 64});
  EXPECT_EQ(options.num_key_value_heads, 4);
  EXPECT_EQ(options.head_width, 16);
  EXPECT_EQ(options.hidden_width, 256);
}

void expect_option_refused(const GptOptions& options, const std::string& message) {
  EXPECT_THAT([&] { complete_gpt_options(options); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("[Gpt] expected " + message)));
}

TEST(GptOptionsTest, ThoseOutOfRangeAreNamed) {
  expect_option_refused({.vocabulary_size = 0}, "vocabulary_size to be from 1 to 2147483648, but got 0");
  expect_option_refused({.max_length = -1}, "max_length to be from 1");
  expect_option_refused({.num_layers = 1 << 20}, "num_layers to be from 1 to 65536, but got 1048576");
  expect_option_refused({.num_heads = 6, .num_key_value_heads = 4},
                        "num_key_value_heads to be a divisor of num_heads 6, but got 4");
  expect_option_refused({.num_key_value_heads = -1}, "num_key_value_heads");
  expect_option_refused({.head_width = -2}, "head_width to be from 1");
  expect_option_refused({.hidden_width = -2}, "hidden_width to be from 1");
  expect_option_refused({.norm_epsilon = 0}, "norm_epsilon to be positive, but got 0");
  expect_option_refused({.attention_dropout = 1}, "attention_dropout to be in [0, 1), but got 1");
  expect_option_refused({.embedding_dropout = -0.1}, "embedding_dropout");
  expect_option_refused({.residual_dropout = 2}, "residual_dropout");
  expect_option_refused({.num_heads = 128, .width = 384, .positions = GptPositions::kRotary},
                        "head_width to be even for rotary positions, but got 3");
  expect_option_refused({.positions = GptPositions::kRotary, .rotary = {.theta = 0}},
                        "rotary.theta to be positive");
  expect_option_refused({.positions = GptPositions::kRotary,
                         .rotary = {.scaling = RotaryScaling::kLlama3, .high_frequency_factor = 1}},
                        "rotary.high_frequency_factor to be above the low_frequency_factor 1, but got 1");
}

TEST(GptFamilyTest, OptionsOfNeitherFamilyAreNamed) {
  const auto refused = [](const GptOptions& options, const std::string& message) {
    EXPECT_THAT([&] { gpt_family(options); }, ThrowsMessage<std::invalid_argument>(HasSubstr(message)));
  };
  refused({.norm = GptNorm::kRmsNorm}, "GPT2LMHeadModel, whose positions are learned, but got RMSNorm");
  refused({.activation = GptActivation::kSwiGlu}, "but got SwiGLU");
  refused({.has_mlp_bias = false}, "but got layers without biases");
  refused({.num_key_value_heads = 3}, "but got fewer heads of keys and values");
  refused({.head_width = 32}, "but got a head_width other than width / num_heads");
  refused({.positions = GptPositions::kRotary},
          "LlamaForCausalLM, whose positions are rotary, but got LayerNorm");
  refused({.positions = GptPositions::kRotary, .norm = GptNorm::kRmsNorm}, "but got GELU");
}

}  // namespace
}  // namespace lockstep
