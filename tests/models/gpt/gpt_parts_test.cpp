// Modules that stand for the parts of a Gpt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/gpt/gpt.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/sharding/sharded_module.h"
#include "lockstep/tests/models/gpt/small_gpts.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

struct Wrapped {
  std::vector<std::string> made;
  std::vector<std::string> called;
  bool had_values = true;
};

/// Stands for each part by a module that holds it, and keeps a record.
PartWrapper recording(Wrapped& record) {
  return [&record](const ModelPart& part) {
    record.made.push_back(part.name);
    for (const auto& parameter : part.module->parameters())
      record.had_values = record.had_values && parameter.abs().max().item<double>() <= 1;
    return WrappedPart{part.module,
                       [&record, name = part.name](const PartFunction& function, const torch::Tensor& x) {
                         record.called.push_back(name);
                         return function(x);
                       }};
  };
}

Gpt seeded_gpt(const GptOptions& options, PartWrapper wrap = {}) {
  torch::manual_seed(8);
  return Gpt(options, std::move(wrap));
}

/// The unit of a rank that is alone, whose parameters are whole at all times.
PartWrapper sharded_alone() {
  return [](const ModelPart& part) {
    const auto unit = std::make_shared<ShardedModule>(part.module, UnitOptions{.name = part.name});
    return WrappedPart{unit, [unit](const PartFunction& function, const torch::Tensor& x) {
                         return unit->call(function, x);
                       }};
  };
}

TEST(GptPartsTest, EachPartIsWrappedInOrderWithItsInitialValues) {
  Wrapped record;
  const Gpt model = seeded_gpt(small_gpt2(), recording(record));
  EXPECT_THAT(record.made, ElementsAre("tokens", "positions", "blocks.0", "blocks.1", "norm"));
  EXPECT_TRUE(record.had_values);
  const Gpt plain = seeded_gpt(small_gpt2());
  EXPECT_TRUE(bit_equal(model->parameters(), plain->parameters()));
  EXPECT_EQ(model->named_parameters().keys(), plain->named_parameters().keys());

  Wrapped llama;
  seeded_gpt(small_llama(), recording(llama));
  EXPECT_THAT(llama.made, ElementsAre("tokens", "blocks.0", "blocks.1", "norm", "head"));
}

TEST(GptPartsTest, EveryPassGoesThroughTheWrappedParts) {
  Wrapped record;
  Gpt model = seeded_gpt(small_gpt2(), recording(record));
  const auto tokens = torch::zeros({1, 4}, torch::kLong);
  model->forward(tokens);
  const auto all = ElementsAre("tokens", "positions", "blocks.0", "blocks.1", "norm", "tokens");
  EXPECT_THAT(record.called, all);
  record.called.clear();
  GptCache cache(model->options(), {.batch_size = 1});
  model->next_logits(tokens, cache);
  EXPECT_THAT(record.called, all);
}

TEST(GptPartsTest, ClonesHaveWrappedPartsOfTheirOwn) {
  Wrapped record;
  const Gpt model = seeded_gpt(small_llama(), recording(record));
  record.made.clear();
  const auto clone = std::dynamic_pointer_cast<GptImpl>(model->clone());
  EXPECT_EQ(record.made.size(), 5U);
  clone->forward(torch::zeros({1, 4}, torch::kLong));
  EXPECT_EQ(record.called.size(), 5U);
  EXPECT_TRUE(bit_equal(clone->parameters(), model->parameters()));
}

class GptUnitsTest : public testing::TestWithParam<NamedGpt> {};

TEST_P(GptUnitsTest, ShardedPartsGiveTheGradientsOfPlainOnes) {
  const GptOptions& options = GetParam().options;
  const auto tokens = torch::randint(options.vocabulary_size, {2, 7}, torch::kLong);
  const auto gradients_of = [&](Gpt model) {
    model->to(torch::kDouble);
    model->forward(tokens).square().mean().backward();
    std::vector<torch::Tensor> gradients;
    for (const auto& parameter : model->parameters()) gradients.push_back(parameter.grad().flatten());
    return gradients;
  };
  const auto expected = gradients_of(seeded_gpt(options));
  EXPECT_LE(largest_difference(gradients_of(seeded_gpt(options, sharded_alone())), expected), 1e-12);
  Gpt recomputed = seeded_gpt(options, sharded_alone());
  recomputed->set_block_runner([](const auto& block, const auto& x) { return recompute(block, x); });
  EXPECT_LE(largest_difference(gradients_of(recomputed), expected), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Families, GptUnitsTest, testing::ValuesIn(small_gpts()), name_of);

}  // namespace
}  // namespace lockstep
