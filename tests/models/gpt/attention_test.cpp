#include "lockstep/models/gpt/internal/attention.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

namespace lockstep {
namespace {

constexpr double kDropout = 0.3;

/// Heads [2, heads, length, 8] of float64.
torch::Tensor some_heads(int64_t heads, int64_t length) {
  return torch::randn({2, heads, length, 8}, torch::kDouble);
}

/// The attention's weights [2, H, T, S], where a query sees a key if `sees` is true.
torch::Tensor plain_weights(const torch::Tensor& queries, const torch::Tensor& keys,
                            const torch::Tensor& sees) {
  const auto repeated = keys.repeat_interleave(queries.size(1) / keys.size(1), 1);
  const auto scores = torch::matmul(queries, repeated.transpose(2, 3)) / std::sqrt(8.0);
  return scores.masked_fill(sees.logical_not(), -INFINITY).softmax(-1);
}

/// Values with which the attention's results are its weights.
torch::Tensor unit_values(int64_t heads, int64_t length) {
  return torch::eye(length, torch::kDouble).expand({2, heads, length, length});
}

TEST(AttentionTest, DropoutKeepsWeightsWithItsProbabilityAndScalesThem) {
  torch::manual_seed(1);
  const auto queries = some_heads(6, 40);
  const auto keys = some_heads(2, 40);
  const auto expected =
      plain_weights(queries, keys, torch::ones({40, 40}, torch::kBool).tril()) / (1 - kDropout);
  const auto given = attend(queries, keys, unit_values(2, 40), {.is_causal = true, .dropout = kDropout});
  const auto is_kept = given != 0;
  EXPECT_TRUE(torch::allclose(given, expected * is_kept, 0, 1e-12));
  const auto sees = expected != 0;
  const double share = is_kept.sum().item<double>() / sees.sum().item<double>();
  EXPECT_NEAR(share, 1 - kDropout, 0.02);
  // Each head draws by itself.
  EXPECT_FALSE(is_kept.select(1, 0).equal(is_kept.select(1, 1)));
}

TEST(AttentionTest, WithoutDropoutEqualsTheFormula) {
  const auto queries = some_heads(6, 5);
  const auto keys = some_heads(2, 9);
  const auto mask = (torch::rand({2, 1, 5, 9}) < 0.6).logical_or(torch::eye(9, torch::kBool).narrow(0, 0, 5));
  EXPECT_TRUE(torch::allclose(attend(queries, keys, unit_values(2, 9), {.mask = mask}),
                              plain_weights(queries, keys, mask), 0, 1e-12));
  EXPECT_TRUE(torch::allclose(attend(queries, keys, unit_values(2, 9), {}),
                              plain_weights(queries, keys, torch::ones({5, 9}, torch::kBool)), 0, 1e-12));
}

}  // namespace
}  // namespace lockstep
