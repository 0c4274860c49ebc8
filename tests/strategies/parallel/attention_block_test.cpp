// Blocks of attention, computed in two ways. Oracle: LibTorch's attention over all keys.
#include "lockstep/strategies/parallel/internal/attention_block.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tests/strategies/parallel/context_cases.h"

namespace lockstep {
namespace {

class AttentionBlocks : public testing::TestWithParam<bool> {
 protected:
  static AttentionBlock block_of(const AttentionInputs& inputs, const AttentionRule& rule) {
    return GetParam() ? attend_by_flash(inputs, rule) : attend_by_products(inputs, rule);
  }
  static AttentionGradients gradients_of(const torch::Tensor& gradient, const AttentionInputs& inputs,
                                         const AttentionBlock& whole, const AttentionRule& rule) {
    return GetParam() ? attend_by_flash_backward(gradient, inputs, whole, rule)
                      : attend_by_products_backward(gradient, inputs, whole, rule);
  }
};

/// Sizes that no tile or vector of a kernel divides.
const AttentionSizes kUneven{.batch = 2, .heads = 6, .kv_heads = 2, .tokens = 301, .head_dim = 13};

TEST_P(AttentionBlocks, EqualAttentionWithItsLogSums) {
  for (const bool is_causal : {false, true}) {
    const WholeAttention whole(kUneven, is_causal);
    const AttentionRule rule{.scale = 1 / std::sqrt(13.0), .is_causal = is_causal};
    const AttentionInputs inputs{whole.q.detach(), whole.k.detach(), whole.v.detach()};
    const auto block = block_of(inputs, rule);
    expect_near(block.out, whole.out.detach(), 1e-13);
    auto scores = inputs.q.matmul(inputs.k.repeat_interleave(3, 1).transpose(-1, -2)) * rule.scale;
    if (is_causal) {
      const auto hidden = torch::ones({301, 301}, torch::kBool).triu(1);
      scores = scores.masked_fill(hidden, -INFINITY);
    }
    expect_near(block.log_sums, scores.logsumexp(-1), 1e-13);
  }
}

TEST_P(AttentionBlocks, GiveTheirPartOfTheGradientsFromTheWholesOutputs) {
  const WholeAttention whole(kUneven, /*is_causal=*/false);
  const AttentionRule rule{.scale = 1 / std::sqrt(13.0)};
  const AttentionInputs inputs{whole.q.detach(), whole.k.detach(), whole.v.detach()};
  const auto outputs = block_of(inputs, rule);
  auto of_q = torch::zeros_like(inputs.q);
  std::vector<torch::Tensor> of_k;
  std::vector<torch::Tensor> of_v;
  for (const auto& [begin, length] : {std::pair(0, 100), std::pair(100, 7), std::pair(107, 194)}) {
    const auto part = gradients_of(
        whole.weights, {inputs.q, inputs.k.narrow(2, begin, length), inputs.v.narrow(2, begin, length)},
        outputs, rule);
    of_q += part.q;
    of_k.push_back(part.k);
    of_v.push_back(part.v);
  }
  expect_near(of_q, whole.q.grad(), 1e-12);
  expect_near(torch::cat(of_k, 2), whole.k.grad(), 1e-12);
  expect_near(torch::cat(of_v, 2), whole.v.grad(), 1e-12);
}

TEST_P(AttentionBlocks, TakeExpandedAndTransposedTensors) {
  const WholeAttention whole(kUneven, /*is_causal=*/true);
  const AttentionRule rule{.scale = 1 / std::sqrt(13.0), .is_causal = true};
  const auto turned = [](const torch::Tensor& value) {
    return value.detach().transpose(-1, -2).contiguous().transpose(-1, -2);
  };
  const AttentionInputs inputs{turned(whole.q), turned(whole.k), turned(whole.v)};
  const auto block = block_of(inputs, rule);
  expect_near(block.out, whole.out.detach(), 1e-13);
  const auto ones = torch::ones({1}, torch::kDouble).expand_as(whole.out);
  const auto gradients = gradients_of(ones, inputs, block, rule);
  const auto expected = torch::autograd::grad({whole.out}, {whole.q, whole.k, whole.v}, {ones.clone()});
  expect_near(gradients.q, expected[0], 1e-12);
  expect_near(gradients.k, expected[1], 1e-12);
  expect_near(gradients.v, expected[2], 1e-12);
}

TEST_P(AttentionBlocks, AddUpLogSumsOfShortTypesInFloat32) {
  const WholeAttention whole(kUneven, /*is_causal=*/true);
  const AttentionRule rule{.scale = 1 / std::sqrt(13.0), .is_causal = true};
  const auto shortened = [](const torch::Tensor& value) { return value.detach().to(torch::kBFloat16); };
  const AttentionInputs inputs{shortened(whole.q), shortened(whole.k), shortened(whole.v)};
  const auto block = block_of(inputs, rule);
  EXPECT_EQ(block.log_sums.scalar_type(), torch::kFloat);
  expect_near(block.out, whole.out.detach(), 0.02);
  const auto gradients = gradients_of(shortened(whole.weights), inputs, block, rule);
  for (const auto& [own, expected] :
       {std::pair(gradients.q, whole.q.grad()), std::pair(gradients.v, whole.v.grad())}) {
    EXPECT_LE((own.to(torch::kDouble) - expected).norm().item<double>(),
              0.02 * expected.norm().item<double>());
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, AttentionBlocks, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "ByFlash" : "ByProducts"); });

}  // namespace
}  // namespace lockstep
