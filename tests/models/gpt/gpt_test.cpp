// Gpt against the formulas of its parts, written token by token.
#include "lockstep/models/gpt/gpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include <cmath>
#include <memory>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/models/gpt/gpt_presets.h"
#include "lockstep/tests/models/gpt/small_gpts.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Parameters = torch::OrderedDict<std::string, torch::Tensor>;

Gpt spread_gpt(const GptOptions& options, torch::Dtype dtype = torch::kDouble) {
  torch::manual_seed(3);
  Gpt model(options);
  model->to(dtype);
  spread_parameters(model);
  return model;
}

torch::Tensor some_tokens(const GptOptions& options, int64_t batch, int64_t length) {
  return torch::randint(options.vocabulary_size, {batch, length}, torch::kLong);
}

torch::Tensor plain_norm(const GptOptions& options, const Parameters& parameters, const std::string& name,
                         const torch::Tensor& x) {
  const auto weight = parameters[name + ".weight"];
  if (options.norm == GptNorm::kRmsNorm)
    return x / (x.square().mean(-1, true) + options.norm_epsilon).sqrt() * weight;
  const auto centred = x - x.mean(-1, true);
  return centred / (centred.square().mean(-1, true) + options.norm_epsilon).sqrt() * weight +
         parameters[name + ".bias"];
}

torch::Tensor plain_dense(const Parameters& parameters, const std::string& name, const torch::Tensor& x) {
  const auto product = torch::matmul(x, parameters[name + ".weight"].t());
  return parameters.contains(name + ".bias") ? product + parameters[name + ".bias"] : product;
}

/// Turns each pair (i, i + width / 2) of a vector by its position times a frequency.
torch::Tensor plain_rotation(const GptOptions& options, const torch::Tensor& vector, int64_t position) {
  const int64_t half = options.head_width / 2;
  std::vector<torch::Tensor> first;
  std::vector<torch::Tensor> second;
  for (int64_t i = 0; i < half; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(options.head_width);
    const double angle = static_cast<double>(position) * std::pow(options.rotary.theta, exponent);
    const auto x = vector[i];
    const auto y = vector[i + half];
    first.push_back(x * std::cos(angle) - y * std::sin(angle));
    second.push_back(y * std::cos(angle) + x * std::sin(angle));
  }
  return torch::cat({torch::stack(first), torch::stack(second)});
}

/// The attention's sum for each token and head, over the tokens up to it.
torch::Tensor plain_attention(const GptOptions& options, const torch::Tensor& qkv) {
  const int64_t heads = options.num_heads;
  const int64_t shared = options.num_key_value_heads;
  const int64_t width = options.head_width;
  const auto vector_of = [&](int64_t token, int64_t head) {
    const auto vector = qkv[token].narrow(0, head * width, width);
    const bool is_value = head >= heads + shared;
    return options.positions == GptPositions::kRotary && !is_value ? plain_rotation(options, vector, token)
                                                                   : vector;
  };
  std::vector<torch::Tensor> tokens;
  for (int64_t token = 0; token < qkv.size(0); ++token) {
    std::vector<torch::Tensor> sums;
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t group = head / (heads / shared);
      std::vector<torch::Tensor> scores;
      std::vector<torch::Tensor> values;
      for (int64_t other = 0; other <= token; ++other) {
        const auto key = vector_of(other, heads + group);
        scores.push_back((vector_of(token, head) * key).sum() / std::sqrt(static_cast<double>(width)));
        values.push_back(vector_of(other, heads + shared + group));
      }
      sums.push_back(torch::matmul(torch::stack(scores).softmax(0), torch::stack(values)));
    }
    tokens.push_back(torch::cat(sums));
  }
  return torch::stack(tokens);
}

torch::Tensor plain_activation(const GptOptions& options, const Parameters& parameters,
                               const std::string& block, const torch::Tensor& x) {
  const auto up = plain_dense(parameters, block + "up", x);
  switch (options.activation) {
    case GptActivation::kGelu:
      return up * 0.5 * (1 + torch::erf(up / std::numbers::sqrt2));
    case GptActivation::kGeluTanh:
      return up * 0.5 * (1 + torch::tanh(std::sqrt(2 / std::numbers::pi) * (up + 0.044715 * up.pow(3))));
    case GptActivation::kSwiGlu:
      break;
  }
  const auto gate = plain_dense(parameters, block + "gate", x);
  return gate * torch::sigmoid(gate) * up;
}

torch::Tensor plain_logits(const Gpt& model, const torch::Tensor& tokens) {
  const GptOptions& options = model->options();
  const auto parameters = model->named_parameters();
  auto x = parameters["tokens.weight"].index({tokens});
  if (options.positions == GptPositions::kLearned)
    x = x + parameters["positions.weight"].narrow(0, 0, tokens.size(0));
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    const std::string block = "blocks." + std::to_string(layer) + ".";
    const auto qkv =
        plain_dense(parameters, block + "qkv", plain_norm(options, parameters, block + "attention_norm", x));
    x = x + plain_dense(parameters, block + "attention_output", plain_attention(options, qkv));
    const auto normed = plain_norm(options, parameters, block + "mlp_norm", x);
    x = x + plain_dense(parameters, block + "down", plain_activation(options, parameters, block, normed));
  }
  const char* head = options.has_tied_head ? "tokens.weight" : "head.weight";
  return torch::matmul(plain_norm(options, parameters, "norm", x), parameters[head].t());
}

class GptFormulaTest : public ::testing::TestWithParam<NamedGpt> {};

TEST_P(GptFormulaTest, EqualsTheFormulaInValuesAndGradients) {
  auto model = spread_gpt(GetParam().options);
  const auto tokens = some_tokens(model->options(), 2, 5);
  const auto logits = model(tokens);
  const auto expected = torch::stack({plain_logits(model, tokens[0]), plain_logits(model, tokens[1])});
  ASSERT_GT(expected.std().item<double>(), 0.1);
  // Rotary factors are float32.
  EXPECT_TRUE(torch::allclose(logits, expected, 1e-5, 1e-5));
  const auto weights = torch::randn(logits.sizes(), torch::kDouble);
  const auto gradients = torch::autograd::grad({(logits * weights).sum()}, model->parameters());
  const auto others = torch::autograd::grad({(expected * weights).sum()}, model->parameters());
  const auto names = model->named_parameters().keys();
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_TRUE(torch::allclose(gradients[i], others[i], 1e-5, 1e-5)) << names[i];
}

TEST_P(GptFormulaTest, ATokenDoesNotSeeThoseAfterIt) {
  auto model = spread_gpt(GetParam().options);
  const auto tokens = some_tokens(model->options(), 1, 8);
  auto changed = tokens.clone();
  changed[0][5] = (changed[0][5] + 1) % model->options().vocabulary_size;
  const auto logits = model(tokens);
  const auto others = model(changed);
  EXPECT_TRUE(logits.narrow(1, 0, 5).equal(others.narrow(1, 0, 5)));
  EXPECT_FALSE(torch::allclose(logits.narrow(1, 6, 2), others.narrow(1, 6, 2), 1e-3, 1e-3));
}

TEST_P(GptFormulaTest, HasAsManyParametersAsCounted) {
  const Gpt model(GetParam().options);
  int64_t count = 0;
  for (const auto& parameter : model->parameters()) count += parameter.numel();
  EXPECT_EQ(num_gpt_parameters(GetParam().options), count);
}

TEST_P(GptFormulaTest, AnEmptyShardGivesZeroGradients) {
  auto model = spread_gpt(GetParam().options, torch::kFloat);
  model->train();
  model(some_tokens(model->options(), 0, 7)).sum().backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_EQ(item.value().grad().abs().max().item<double>(), 0) << item.key();
  }
}

TEST_P(GptFormulaTest, AnEmptyShardGivesZeroGradientsWithDropoutInAttention) {
  GptOptions options = GetParam().options;
  options.attention_dropout = 0.5;
  auto model = spread_gpt(options, torch::kFloat);
  model(some_tokens(options, 0, 7)).sum().backward();
  EXPECT_EQ(model->parameters()[0].grad().abs().max().item<double>(), 0);
}

TEST_P(GptFormulaTest, ClonesAreDeepAndComputeTheSame) {
  auto model = spread_gpt(GetParam().options, torch::kFloat);
  const auto tokens = some_tokens(model->options(), 2, 9);
  Gpt copy(std::dynamic_pointer_cast<GptImpl>(model->clone()));
  EXPECT_TRUE(copy(tokens).equal(model(tokens)));
  EXPECT_EQ(copy->named_parameters().keys(), model->named_parameters().keys());
  const auto before = copy(tokens);
  spread_parameters(model);
  EXPECT_TRUE(copy(tokens).equal(before));
  EXPECT_FALSE(model(tokens).equal(before));
}

INSTANTIATE_TEST_SUITE_P(Options, GptFormulaTest, ::testing::ValuesIn(small_gpts()), name_of);

TEST(GptTest, TheDefaultHasTheSizeOfTheTrainingPeer) {
  // 6 layers over 256 bytes and 256 positions, separate head: counted by PyTorch for the same layers.
  EXPECT_EQ(num_gpt_parameters({}), 10'942'464);
  int64_t count = 0;
  for (const auto& parameter : Gpt(GptOptions{})->parameters()) count += parameter.numel();
  EXPECT_EQ(count, 10'942'464);
}

TEST(GptTest, StartsAsGpt2) {
  torch::manual_seed(4);
  const GptOptions options{.num_layers = 3, .num_heads = 4, .width = 128};
  const Gpt model(options);
  for (const auto& item : model->named_parameters()) {
    const std::string& name = item.key();
    const auto& values = item.value();
    if (name.ends_with("bias")) {
      EXPECT_TRUE(values.eq(0).all().item<bool>()) << name;
    } else if (name.ends_with("norm.weight")) {
      EXPECT_TRUE(values.eq(1).all().item<bool>()) << name;
    } else {
      const bool is_added =
          name.find("attention_output") != std::string::npos || name.find("down") != std::string::npos;
      const double deviation = is_added ? 0.02 / std::sqrt(6) : 0.02;
      EXPECT_NEAR(values.std().item<double>(), deviation, 0.05 * deviation) << name;
      EXPECT_NEAR(values.mean().item<double>(), 0, 0.05 * deviation) << name;
    }
  }
}

TEST(GptTest, DropoutsActInTrainingOnly) {
  const auto differs_with = [](const GptOptions& options) {
    auto model = spread_gpt(options, torch::kFloat);
    const auto tokens = some_tokens(options, 2, 9);
    EXPECT_FALSE(model(tokens).equal(model(tokens)));
    model->eval();
    EXPECT_TRUE(model(tokens).equal(model(tokens)));
    auto without = spread_gpt(small_gpt2(), torch::kFloat);
    EXPECT_TRUE(model(tokens).equal(without(tokens)));
  };
  GptOptions options = small_gpt2();
  options.embedding_dropout = 0.5;
  differs_with(options);
  options = small_gpt2();
  options.attention_dropout = 0.5;
  differs_with(options);
  options = small_gpt2();
  options.residual_dropout = 0.5;
  differs_with(options);
}

TEST(GptTest, RefusesOptionsAndTokensByName) {
  EXPECT_THAT([] { Gpt(GptOptions{.num_heads = 5}); },
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("[Gpt] expected width to be a multiple of num_heads 5, but got 384")));
  Gpt model(small_gpt2());
  EXPECT_THAT(
      [&] {
        model(torch::zeros({2, 13}, torch::kLong));
      },
      ThrowsMessage<std::invalid_argument>(
          HasSubstr("tokens of shape [B, T] with T from 1 to 12, but got [2, 13]")));
  EXPECT_THAT([&] { model(torch::zeros({3}, torch::kLong)); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("but got [3]")));
  EXPECT_THAT(
      [&] {
        model(torch::zeros({2, 3}, torch::kInt));
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("tokens of dtype Long, but got Int")));
}

TEST(GptTest, ComputesNearlyTheSameInHalfPrecision) {
  for (const auto& options : {small_gpt2(), small_llama()}) {
    auto model = spread_gpt(options, torch::kFloat);
    const auto tokens = some_tokens(options, 2, 9);
    const auto expected = model(tokens);
    model->to(torch::kBFloat16);
    const auto given = model(tokens);
    EXPECT_EQ(given.scalar_type(), torch::kBFloat16);
    EXPECT_LT((given.to(torch::kFloat) - expected).abs().mean().item<double>(), 0.05);
  }
}

}  // namespace
}  // namespace lockstep
