// Models that are cut along an axis of the mesh. Oracle: the whole model on one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/models/gpt/gpt_generation.h"
#include "lockstep/models/gpt/gpt_weights.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/tests/models/gpt/cut_gpts.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kCutSteps = compared_steps(20);
// Of a training that differs from a longer one only by where its ranks run, or by recomputed blocks.
constexpr int kFewCutSteps = compared_steps(6);
constexpr double kCutTolerance = 1e-12;
const Mesh kWholeMesh{{"data", 1}};

using CutGptCase = std::tuple<NamedGpt, std::string>;

std::string name_of_case(const testing::TestParamInfo<CutGptCase>& info) {
  std::string name = std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '=' || c == ','; }, '_');
  return name;
}

class CutGptTest : public testing::TestWithParam<CutGptCase> {
 protected:
  static GptOptions options() { return std::get<0>(GetParam()).options; }
  static Mesh mesh() { return parse_mesh(std::get<1>(GetParam())); }
};

/// Trains on both meshes, and expects equal losses and parameters.
void expect_equal_training(const GptOptions& options, const Mesh& mesh, int steps,
                           const GptBlockRunner& runner = {}, GptCutOptions how = {}) {
  MirroredStrategy whole_strategy(cpu_devices(1), cut_gpt_strategy(kWholeMesh));
  CutGptTraining whole(whole_strategy, options);
  MirroredStrategy strategy(cpu_devices(mesh.size()), cut_gpt_strategy(mesh));
  CutGptTraining cut(strategy, options, runner, how);
  double first = 0;
  double last = 0;
  for (int step = 0; step < steps; ++step) {
    last = whole.step(step);
    if (step == 0) first = last;
    ASSERT_NEAR(cut.step(step), last, kCutTolerance) << "step " << step;
  }
  EXPECT_LT(last, first);
  for (const auto& own : cut.model.local_values())
    EXPECT_LE(difference_from_whole(own, whole.model.primary()), kCutTolerance);
}

TEST_P(CutGptTest, TrainsAsTheWholeModel) {
  expect_equal_training(options(), mesh(), kCutSteps);
}

TEST_P(CutGptTest, TrainsAsTheWholeModelWithRecomputedBlocks) {
  expect_equal_training(options(), mesh(), kFewCutSteps,
                        [](const auto& block, const auto& x) { return recompute(block, x); });
}

TEST_P(CutGptTest, TrainsOnShardsOfTheSequenceAsTheWholeModel) {
  GptOptions longer = options();  // The length of sequences is one less than the longest.
  longer.max_length = 9;
  expect_equal_training(longer, mesh(), kCutSteps, {}, {.shard_sequence = true});
  expect_equal_training(longer, mesh(), kFewCutSteps,
                        [](const auto& block, const auto& x) { return recompute(block, x); },
                        {.shard_sequence = true});
}

INSTANTIATE_TEST_SUITE_P(Families, CutGptTest,
                         testing::ValuesIn(pairs_to_test(cut_gpts(),
                                                         std::vector<std::string>{"tensor=2", "tensor=4",
                                                                                  "data=2,tensor=2"})),
                         name_of_case);

class CutGptFamilyTest : public testing::TestWithParam<NamedGpt> {
 protected:
  /// Returns what `work` returns for the whole model on one device, and on each of two ranks that share it.
  template <typename Work>
  auto on_both(const Work& work, GptCutOptions how) const {
    MirroredStrategy whole_strategy(cpu_devices(1), cut_gpt_strategy(kWholeMesh));
    CutGptTraining whole(whole_strategy, GetParam().options);
    auto results = whole_strategy.run(work, whole.model).local_values();
    MirroredStrategy strategy(cpu_devices(2), cut_gpt_strategy({{"tensor", 2}}));
    CutGptTraining cut(strategy, GetParam().options, {}, how);
    const auto of_ranks = strategy.run(work, cut.model).local_values();
    results.insert(results.end(), of_ranks.begin(), of_ranks.end());
    return results;
  }
};

TEST_P(CutGptFamilyTest, BeginsWithPartsOfTheWholeModelsValues) {
  const auto& options = GetParam().options;
  torch::manual_seed(4);
  const Gpt whole(options);
  const auto next = torch::rand({1});
  MirroredStrategy strategy(cpu_devices(4), cut_gpt_strategy({{"tensor", 4}}));
  torch::manual_seed(4);
  auto model = strategy.scope([&](ReplicaContext& replica) { return Gpt(options, replica.axis("tensor")); });
  EXPECT_TRUE(torch::rand({1}).equal(next)) << "draws as many numbers";
  int64_t elements = 0;
  for (const auto& own : model.local_values()) {
    EXPECT_EQ(difference_from_whole(own, whole), 0);
    for (const auto& parameter : own->parameters())
      if (is_cut(parameter)) elements += parameter.numel();
  }
  int64_t expected = 0;
  for (const auto& parameter : model.primary()->parameters())
    if (is_cut(parameter)) expected += sharded_parameter_of(parameter)->num_elements();
  EXPECT_EQ(elements, expected);
  EXPECT_GT(expected, num_gpt_parameters(options) * 9 / 10);
}

TEST_P(CutGptFamilyTest, GathersLogitsWithTheirGradients) {
  const auto logits_and_gradient = [](ReplicaContext&, Gpt& gpt) {
    const auto tokens = tokens_of_step(0, gpt->options());
    const auto logits = gpt(tokens);
    (logits * logits).sum().backward();
    const auto of_norm = gpt->named_parameters()["blocks.0.attention_norm.weight"];
    return std::vector<torch::Tensor>{logits.detach(), of_norm.grad()};
  };
  for (const bool has_shards : {false, true}) {
    const auto results = on_both(logits_and_gradient, {.shard_sequence = has_shards});
    for (size_t rank = 1; rank < results.size(); ++rank) {
      EXPECT_EQ(results[rank][0].sizes(), (std::vector<int64_t>{4, 12, 32}));
      for (size_t i = 0; i < 2; ++i)
        EXPECT_TRUE(torch::allclose(results[rank][i], results[0][i], kCutTolerance, kCutTolerance))
            << rank << " " << i;
    }
  }
}

TEST_P(CutGptFamilyTest, GeneratesTheTokensOfTheWholeModel) {
  const auto tokens_of = [](ReplicaContext&, Gpt& gpt) {
    const std::vector<std::vector<int64_t>> prompts = {{1, 5, 9}, {2}, {30, 31, 0, 7, 7}};
    auto generated = generate(gpt, prompts, {.max_new_tokens = 6, .temperature = 0});
    auto generator = at::globalContext().defaultGenerator(torch::kCPU).clone();
    generator.set_current_seed(5);
    const auto drawn = generate(gpt, prompts,
                                {.max_new_tokens = 7,
                                 .temperature = 0.9,
                                 .top_k = 12,
                                 .top_p = 0.95,
                                 .stop_tokens = {3},
                                 .generator = generator});
    generated.insert(generated.end(), drawn.begin(), drawn.end());
    return generated;
  };
  for (const bool has_shards : {false, true}) {
    const auto results = on_both(tokens_of, {.shard_sequence = has_shards});
    for (size_t rank = 1; rank < results.size(); ++rank) EXPECT_EQ(results[rank], results[0]) << rank;
  }
}

TEST_P(CutGptFamilyTest, ReadsTokensWithACacheAsTheWholeModel) {
  const auto logits_of = [](ReplicaContext&, Gpt& gpt) {
    GptCache cache(gpt->options(), {.batch_size = 4});
    const auto tokens = tokens_of_step(1, gpt->options());
    auto first = gpt->next_logits(tokens.narrow(1, 0, 5), cache);
    return torch::stack({first, gpt->next_logits(tokens.narrow(1, 5, 1), cache),
                         gpt->next_logits(tokens.narrow(1, 6, 3), cache)});
  };
  const auto results = on_both(logits_of, {});
  for (size_t rank = 1; rank < results.size(); ++rank)
    EXPECT_TRUE(torch::allclose(results[rank], results[0], kCutTolerance, kCutTolerance)) << rank;
}

INSTANTIATE_TEST_SUITE_P(Families, CutGptFamilyTest, testing::ValuesIn(cut_gpts()), name_of);

TEST(CutGptWeightsTest, RanksLoadTheirPartsOfFilesOfBothFamilies) {
  for (const auto& gpt : {cut_gpts()[0], cut_gpts()[1]}) {
    SCOPED_TRACE(gpt.name);
    Gpt whole(gpt.options);
    spread_parameters(whole);
    const auto weights = gpt_weights_for_file(whole);
    MirroredStrategy strategy(cpu_devices(2), cut_gpt_strategy({{"tensor", 2}}));
    auto model = strategy.scope([&](ReplicaContext& replica) {
      Gpt own(gpt.options, replica.axis("tensor"));
      load_gpt_weights(own, weights);
      return own;
    });
    for (const auto& own : model.local_values()) EXPECT_EQ(difference_from_whole(own, whole), 0);
    EXPECT_THAT(message_of<InvalidArgument>([&] { gpt_weights_for_file(model.primary()); }),
                AllOf(HasSubstr("whole model"), HasSubstr("tokens.weight"), HasSubstr("axis tensor")));
  }
}

TEST(CutGptDropoutTest, VectorsOfAllRanksLoseTheSameElementsAsOnOneDevice) {
  GptOptions options = cut_gpts()[0].options;
  options.embedding_dropout = 0.2;
  options.residual_dropout = 0.3;
  expect_equal_training(options, {{"tensor", 2}}, kCutSteps);
}

/// The losses and gradients of two steps of a model with dropout in attention, on each of two ranks.
std::vector<std::vector<torch::Tensor>> steps_with_attention_dropout(const GptBlockRunner& runner,
                                                                     bool has_shards) {
  GptOptions options = cut_gpts()[1].options;
  options.attention_dropout = 0.4;
  if (has_shards) options.embedding_dropout = options.residual_dropout = 0.3;
  MirroredStrategy strategy(cpu_devices(2), cut_gpt_strategy({{"tensor", 2}}));
  CutGptTraining cut(strategy, options, runner, {.shard_sequence = has_shards});
  const auto results = strategy.run(
      [](ReplicaContext& replica, Gpt& gpt) {
        const auto state = [](at::Generator& generator) {
          const std::lock_guard<std::mutex> lock(generator.mutex());
          return generator.get_state();
        };
        const auto before = state(replica.generator());
        const auto own_before = state(replica.rank_generator());
        const auto tokens = tokens_of_step(0, gpt->options());
        std::vector<torch::Tensor> values;
        for (int i = 0; i < 2; ++i) {
          gpt->zero_grad();
          const auto loss = gpt->losses(tokens, tokens).sum();
          loss.backward();
          values.push_back(loss.detach());
          for (const auto& parameter : gpt->parameters()) values.push_back(parameter.grad().clone());
        }
        TORCH_CHECK(state(replica.generator()).equal(before), "drew the replica's numbers");
        TORCH_CHECK(!state(replica.rank_generator()).equal(own_before), "drew no numbers of the rank's own");
        return values;
      },
      cut.model);
  return results.local_values();
}

void expect_own_numbers_that_are_repeated(bool has_shards) {
  const auto plain = steps_with_attention_dropout({}, has_shards);
  const auto again = steps_with_attention_dropout({}, has_shards);
  const auto recomputed = steps_with_attention_dropout(
      [](const auto& block, const auto& x) { return recompute(block, x); }, has_shards);
  ASSERT_EQ(plain.size(), 2U);
  const size_t second = plain[0].size() / 2;
  EXPECT_FALSE(plain[0][0].equal(plain[0][second])) << "both steps dropped the same";
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(recomputed[rank].size(), plain[rank].size());
    for (size_t i = 0; i < plain[rank].size(); ++i) {
      EXPECT_TRUE(again[rank][i].equal(plain[rank][i])) << rank << " " << i;
      EXPECT_TRUE(torch::allclose(recomputed[rank][i], plain[rank][i], kCutTolerance, kCutTolerance))
          << rank << " " << i;
    }
  }
}

TEST(CutGptDropoutTest, HeadsDrawNumbersOfTheirRanksOwnThatRecomputationRepeats) {
  expect_own_numbers_that_are_repeated(false);
}

TEST(CutGptDropoutTest, ShardsOfTheSequenceDrawNumbersOfTheirRanksOwnThatRecomputationRepeats) {
  expect_own_numbers_that_are_repeated(true);
}

TEST(CutGptErrorsTest, SequencesThatTheRanksDoNotDivideAreRefused) {
  MirroredStrategy strategy(cpu_devices(2), cut_gpt_strategy({{"tensor", 2}}));
  CutGptTraining cut(strategy, cut_gpts()[0].options, {}, {.shard_sequence = true});
  const auto message = message_of<InvalidArgument>([&] {
    strategy.run([](ReplicaContext&, Gpt& gpt) { gpt(torch::zeros({2, 5}, torch::kLong)); }, cut.model);
  });
  EXPECT_THAT(message, AllOf(HasSubstr("[Gpt]"), HasSubstr("2 ranks along the axis tensor"),
                             HasSubstr("got sequences of 5 tokens")));
}

TEST(CutGptShardsTest, AReplicaWithoutSequencesTakesPart) {
  const GptOptions options = cut_gpts()[1].options;
  const auto gradients_on = [&](const Mesh& mesh) {
    MirroredStrategy strategy(cpu_devices(mesh.size()), cut_gpt_strategy(mesh));
    CutGptTraining training(strategy, options);
    return strategy
        .run(
            [](ReplicaContext& replica, Gpt& gpt, torch::optim::AdamW& optimizer) {
              const auto all = tokens_of_step(0, gpt->options(), 1);
              const auto own = all.narrow(0, 0, replica.replica_id() == 0 ? 1 : 0);
              gpt->losses(own, own).sum().backward();
              replica.reduce_gradients(optimizer);
              return gpt->named_parameters()["norm.weight"].grad().clone();
            },
            training.model, training.adam)
        .local_values();
  };
  const auto expected = gradients_on(kWholeMesh).front();
  for (const auto& gradient : gradients_on({{"data", 2}, {"tensor", 2}}))
    EXPECT_TRUE(torch::allclose(gradient, expected, kCutTolerance, kCutTolerance));
}

std::string error_of_cutting(int ranks, const GptOptions& options, const std::string& axis = "tensor") {
  MirroredStrategy strategy(cpu_devices(ranks), cut_gpt_strategy({{axis, ranks}}));
  return message_of<InvalidArgument>(
      [&] { strategy.scope([&](ReplicaContext& replica) { return Gpt(options, replica.axis(axis)); }); });
}

TEST(CutGptErrorsTest, SizesThatTheRanksDoNotDivideAreRefusedWithSizesThatWouldDo) {
  EXPECT_THAT(error_of_cutting(2, small_gpt2()),
              AllOf(HasSubstr("[Gpt]"), HasSubstr("num_heads that the 2 ranks along the axis tensor divide"),
                    HasSubstr("got 3: 2 or 4 would do")));
  GptOptions options = cut_gpts()[1].options;
  options.num_key_value_heads = 2;
  EXPECT_THAT(error_of_cutting(4, options), HasSubstr("num_key_value_heads that the 4 ranks along the axis "
                                                      "tensor divide, but got 2: 4 would do"));
  options = cut_gpts()[0].options;
  options.vocabulary_size = 33;
  EXPECT_THAT(error_of_cutting(2, options), HasSubstr("got 33: 34 would do"));
}

TEST(CutGptErrorsTest, AnAxisThatCutsTheBatchIsRefused) {
  EXPECT_THAT(error_of_cutting(2, cut_gpts()[0].options, "data"),
              AllOf(HasSubstr("[Gpt]"), HasSubstr("cuts the batch")));
}

TEST(CutGptErrorsTest, ACutModelIsNotCloned) {
  MirroredStrategy strategy(cpu_devices(2), cut_gpt_strategy({{"tensor", 2}}));
  CutGptTraining cut(strategy, cut_gpts()[0].options);
  EXPECT_THAT(message_of<InvalidArgument>([&] { cut.model.primary()->clone(); }), HasSubstr("clone"));
}

TEST(CutGptErrorsTest, TargetsOfAnotherShapeAreRefused) {
  const Gpt gpt(small_gpt2());
  const auto tokens = torch::zeros({2, 4}, torch::kLong);
  EXPECT_THAT(message_of<std::invalid_argument>([&] { gpt->losses(tokens, tokens.flatten()); }),
              HasSubstr("[2, 4]"));
}

}  // namespace
}  // namespace lockstep
