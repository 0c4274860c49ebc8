#include "lockstep/models/gpt/gpt_flops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "lockstep/models/gpt/gpt_presets.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Sums up the matrix products of a step: each takes 2 operations a weight in forward, and twice as many in
/// backward. Attention has two products of T vectors of a head for each token.
double counted_flops(const GptOptions& given, int64_t length) {
  const GptOptions model = complete_gpt_options(given);
  const int64_t queries = model.num_heads * model.head_width;
  const int64_t keys = model.num_key_value_heads * model.head_width;
  const int64_t matrices = model.activation == GptActivation::kSwiGlu ? 3 : 2;
  const int64_t weights_of_layer = model.width * (queries + 2 * keys) + queries * model.width +
                                   matrices * model.width * model.hidden_width;
  const int64_t weights = model.num_layers * weights_of_layer + model.width * model.vocabulary_size;
  const int64_t attention = model.num_layers * 2 * queries * length;
  return 3 * 2.0 * static_cast<double>(weights + attention);
}

/// Returns the number of weights of norms, and of biases.
double num_in_vectors(const GptOptions& given) {
  const GptOptions model = complete_gpt_options(given);
  const int64_t norm = (model.norm == GptNorm::kLayerNorm ? 2 : 1) * model.width;
  const int64_t rows = (model.num_heads + 2 * model.num_key_value_heads) * model.head_width;
  const int64_t into_hidden = model.activation == GptActivation::kSwiGlu ? 2 : 1;
  const int64_t biases = (model.has_attention_bias ? rows + model.width : 0) +
                         (model.has_mlp_bias ? into_hidden * model.hidden_width + model.width : 0);
  return static_cast<double>(model.num_layers * (2 * norm + biases) + norm);
}

TEST(GptFlopsTest, AreThoseOfAllMatrixProductsWithNormsAndBiasesAsIfTheyWereMatrices) {
  const std::pair<std::string, int64_t> cases[] = {
      {"bytes", 256}, {"gpt2", 1024}, {"tinyllama-1.1b", 2048}, {"llama-3.1-8b", 8192}};
  for (const auto& [name, length] : cases) {
    const GptOptions model = gpt_preset(name);
    EXPECT_DOUBLE_EQ(gpt_training_flops(model, length),
                     counted_flops(model, length) + 6 * num_in_vectors(model))
        << name;
  }
}

TEST(GptFlopsTest, OfGpt2AreThoseOfTheFormulaInNumbers) {
  // N without the table of positions is 123,653,376: 6 N + 12 * 12 layers * 12 heads * 64 * 1024 tokens.
  EXPECT_DOUBLE_EQ(gpt_training_flops(gpt_preset("gpt2"), 1024), 6.0 * 123'653'376 + 12.0 * 12 * 768 * 1024);
}

TEST(GptFlopsTest, DoNotCountTablesThatAreOnlyLookedUp) {
  GptOptions options = gpt_preset("llama-3.2-1b");
  const double tied = gpt_training_flops(options, 1024);
  options.has_tied_head = false;
  EXPECT_DOUBLE_EQ(gpt_training_flops(options, 1024), tied);
}

TEST(GptFlopsTest, OfBlocksAddUpAndChangeWithTheirOwnSizesAlone) {
  GptOptions experts = gpt_preset("gpt2");
  experts.num_experts = 8;
  experts.num_shared_experts = 1;
  for (const GptOptions& model : {gpt_preset("gpt2"), gpt_preset("llama-3.1-8b"), experts}) {
    const auto flops = gpt_block_flops(model, 512);
    ASSERT_EQ(flops.size(), static_cast<size_t>(model.num_layers) + 2);
    EXPECT_EQ(flops.front(), 0);
    EXPECT_NEAR(std::accumulate(flops.begin(), flops.end(), 0.0), gpt_training_flops(model, 512),
                1e-9 * gpt_training_flops(model, 512));
    GptOptions wider = model;
    wider.vocabulary_size += 1000;
    const auto of_wider = gpt_block_flops(wider, 512);
    EXPECT_DOUBLE_EQ(of_wider.back() - flops.back(), 6.0 * 1000 * static_cast<double>(model.width));
    EXPECT_NEAR(of_wider[1], flops[1], 1e-9 * flops[1]);
    GptOptions deeper = model;
    deeper.num_layers += 1;
    EXPECT_NEAR(gpt_block_flops(deeper, 512)[1], flops[1], 1e-9 * flops[1]);
  }
}

TEST(GptFlopsTest, RefuseSequencesOfNoTokens) {
  EXPECT_THAT([] { gpt_training_flops({}, 0); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("expected a length of 1 or more, but got 0")));
}

}  // namespace
}  // namespace lockstep
