// Models that are cut into stages. Oracle: the whole model on one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/models/gpt/gpt_generation.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/tests/models/gpt/cut_gpts.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kStagedSteps = compared_steps(10);
constexpr double kStagedTolerance = 1e-12;

struct StagedGptCase {
  const char* mesh;
  const char* schedule = "1f1b";
  int stage = 0;
  bool recomputes = false;
  bool shard_sequence = false;
  int64_t length = 8;  ///< of sequences
  ContextMethod method = ContextMethod::kRing;

  std::string str() const {
    std::string text = std::string(schedule) + "_" + mesh + "_stage_" + std::to_string(stage);
    if (recomputes) text += "_recomputing";
    if (shard_sequence) text += "_on_shards";
    if (length != 8) text += "_of_" + std::to_string(length);
    if (method == ContextMethod::kAllToAll) text += "_all_to_all";
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == '=' || c == ',' || c == '-'; }, '_');
    return text;
  }
};

using FamilyAndCase = std::tuple<NamedGpt, StagedGptCase>;

class StagedGptTest : public testing::TestWithParam<FamilyAndCase> {};

TEST_P(StagedGptTest, TrainsAsTheWholeModel) {
  const auto& [family, given] = GetParam();
  GptOptions options = family.options;
  options.max_length = given.length + 1;
  MirroredStrategy whole_strategy(cpu_devices(1), cut_gpt_strategy(Mesh{{"data", 1}}));
  CutGptTraining whole(whole_strategy, options);
  const Mesh mesh = parse_mesh(given.mesh);
  MirroredStrategy strategy(cpu_devices(mesh.size()), cut_gpt_strategy(mesh, given.stage));
  const GptBlockRunner runner = given.recomputes
                                    ? [](const auto& block, const auto& x) { return recompute(block, x); }
                                    : GptBlockRunner();
  CutGptTraining staged(strategy, options, runner, {.shard_sequence = given.shard_sequence}, given.method,
                        {.schedule = given.schedule, .micro_batches = 2});
  for (int step = 0; step < kStagedSteps; ++step)
    ASSERT_NEAR(staged.step(step), whole.step(step), kStagedTolerance) << "step " << step;
  for (const auto& own : staged.model.local_values())
    EXPECT_LE(difference_from_whole(own, whole.model.primary()), kStagedTolerance);
}

const std::vector<StagedGptCase> kStagedCases{{"pipeline=2", "gpipe"},
                                              {"pipeline=4", "1f1b"},
                                              {"pipeline=2", "interleaved"},
                                              {"pipeline=2", "zb-v", 0, true},
                                              {"pipeline=2,tensor=2", "zb-h1", 0, false, true},
                                              {"data=2,pipeline=2,tensor=2", "1f1b", 1},
                                              {"pipeline=2,data=2", "1f1b", 2},
                                              {"data=2,pipeline=2", "zb-v", 3}};

INSTANTIATE_TEST_SUITE_P(Families, StagedGptTest, testing::ValuesIn(pairs_to_test(cut_gpts(), kStagedCases)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  std::get<1>(info.param).str();
                         });

// Ranks of the same stage have different tokens.
const std::vector<StagedGptCase> kStagedContextCases{
    {.mesh = "pipeline=2,context=2", .length = 7},
    {.mesh = "context=2,pipeline=2", .schedule = "zb-h1", .length = 7, .method = ContextMethod::kAllToAll},
    {.mesh = "pipeline=2,context=2", .schedule = "zb-v", .recomputes = true},
    {.mesh = "pipeline=2,context=2,tensor=2", .schedule = "interleaved", .shard_sequence = true},
    {.mesh = "data=2,pipeline=2,context=2", .schedule = "zb-v", .stage = 1, .length = 5},
    {.mesh = "context=2,pipeline=2,data=2", .stage = 3}};

INSTANTIATE_TEST_SUITE_P(Contexts, StagedGptTest,
                         testing::ValuesIn(pairs_to_test(cut_gpts(), kStagedContextCases)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  std::get<1>(info.param).str();
                         });

class StagedGptResultsTest : public testing::TestWithParam<NamedGpt> {};

TEST_P(StagedGptResultsTest, AllRanksReturnWhatTheWholeModelReturns) {
  const auto& options = GetParam().options;
  const auto results_of = [](ReplicaContext&, Gpt& gpt) {
    const torch::NoGradGuard no_grad;
    gpt->eval();
    const auto tokens = tokens_of_step(3, gpt->options(), /*sequences=*/5).narrow(1, 0, 6);
    const auto generated = generate(gpt, {{1, 2, 3}, {4}}, {.max_new_tokens = 5});
    std::vector<torch::Tensor> results{gpt(tokens), gpt->features(tokens),
                                       gpt->losses(tokens, (tokens + 1).remainder(32))};
    for (const auto& text : generated) results.push_back(torch::tensor(text));
    gpt->train();
    return results;
  };
  MirroredStrategy whole_strategy(cpu_devices(1), cut_gpt_strategy(Mesh{{"data", 1}}));
  CutGptTraining whole(whole_strategy, options);
  const auto expected = whole_strategy.run(results_of, whole.model)[0];
  for (const char* mesh : {"pipeline=2", "pipeline=2,tensor=2", "pipeline=4"}) {
    MirroredStrategy strategy(cpu_devices(parse_mesh(mesh).size()), cut_gpt_strategy(parse_mesh(mesh)));
    CutGptTraining staged(strategy, options);
    const auto of_ranks = strategy.run(results_of, staged.model);
    for (const auto& results : of_ranks.local_values()) {
      ASSERT_EQ(results.size(), expected.size());
      for (size_t i = 0; i < results.size(); ++i)
        EXPECT_TRUE(torch::allclose(results[i], expected[i], 0, kStagedTolerance)) << mesh << " " << i;
    }
  }
}

TEST_P(StagedGptResultsTest, RanksOfAContextReturnWhatTheWholeModelReturnsForTheirTokens) {
  const auto& options = GetParam().options;
  const auto results_of = [](ReplicaContext&, Gpt& gpt) {
    const torch::NoGradGuard no_grad;
    const auto tokens = tokens_of_step(3, gpt->options(), /*sequences=*/5).narrow(1, 0, 7);
    const auto text = generate(gpt, {{1, 2, 3}, {4}}, {.max_new_tokens = 4})[1];
    return std::vector<torch::Tensor>{gpt(tokens), gpt->features(tokens),
                                      gpt->losses(tokens, (tokens + 1).remainder(32)), torch::tensor(text)};
  };
  MirroredStrategy whole_strategy(cpu_devices(1), cut_gpt_strategy(Mesh{{"data", 1}}));
  CutGptTraining whole(whole_strategy, options);
  const auto expected = whole_strategy.run(results_of, whole.model)[0];
  MirroredStrategy strategy(cpu_devices(4), cut_gpt_strategy(parse_mesh("pipeline=2,context=2")));
  CutGptTraining staged(strategy, options);
  const auto of_ranks = strategy.run(results_of, staged.model);
  for (size_t rank = 0; rank < 4; ++rank) {
    const auto order = staged.model.local_values()[rank]->token_order(7);
    const auto& own = of_ranks[rank];
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(torch::allclose(own[i], order.own_part(expected[i], 1), 0, kStagedTolerance))
          << rank << " " << i;
    EXPECT_TRUE(torch::equal(own[3], expected[3])) << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, StagedGptResultsTest, testing::ValuesIn(cut_gpts()),
                         [](const auto& info) { return std::string(info.param.name); });

class GptBlocksTest : public testing::TestWithParam<NamedGpt> {};

TEST_P(GptBlocksTest, AreForwardOneAfterAnother) {
  for (const int64_t experts : {0, 2}) {
    GptOptions options = GetParam().options;
    options.num_experts = experts;
    Gpt gpt(options);
    gpt->to(torch::kDouble);
    gpt->eval();
    const auto blocks = gpt->blocks();
    ASSERT_EQ(blocks.size(), static_cast<size_t>(options.num_layers) + 2);
    EXPECT_EQ(blocks[1].name, "blocks.0");
    for (const int64_t length : {8, 3}) {
      const auto tokens = torch::arange(2 * length).view({2, length});
      auto x = tokens;
      for (const auto& block : blocks) x = block.forward(x);
      EXPECT_TRUE(torch::allclose(x, gpt->forward(tokens), 0, kStagedTolerance)) << length;
    }
    EXPECT_THROW(blocks.front().forward(torch::zeros({2, 8})), std::invalid_argument);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GptBlocksTest, testing::ValuesIn(small_gpts()), name_of);

TEST(StagedGptErrorsTest, ModelsThatCannotBeCutIntoStagesAreRefused) {
  const auto refused = [](const char* mesh, GptOptions options, PipelineOptions pipeline = {}) {
    return message_of<InvalidArgument>([&] {
      MirroredStrategy strategy(cpu_devices(parse_mesh(mesh).size()), cut_gpt_strategy(parse_mesh(mesh)));
      CutGptTraining training(strategy, options, {}, {}, ContextMethod::kRing, pipeline);
    });
  };
  GptOptions experts = small_gpt2();
  experts.num_experts = 2;
  EXPECT_THAT(refused("expert=3,pipeline=2", experts), HasSubstr("num_experts"));
  EXPECT_THAT(refused("pipeline=8", small_gpt2()),
              HasSubstr("expected at least one block for each of 8 stages, but got 4 blocks"));
  EXPECT_THAT(refused("pipeline=2", small_gpt2(), {.schedule = "fast"}), HasSubstr("fast"));
  EXPECT_THAT(refused("pipeline=2", small_gpt2(), {.micro_batches = 0}),
              HasSubstr("expected at least 1 micro-batch, but got 0"));
  EXPECT_THAT(refused("pipeline=2:data", small_gpt2()),
              HasSubstr("expected an axis along which models are cut, such as pipeline, but got pipeline, "
                        "along which the batch is cut"));
}

TEST(StagedGptErrorsTest, LossesWithGradientsAreRefused) {
  MirroredStrategy strategy(cpu_devices(2), cut_gpt_strategy(parse_mesh("pipeline=2")));
  CutGptTraining training(strategy, small_gpt2());
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.run(
                    [](ReplicaContext&, Gpt& gpt) {
                      const auto tokens = tokens_of_step(0, gpt->options());
                      gpt->losses(tokens.narrow(1, 0, 4), tokens.narrow(1, 1, 4));
                    },
                    training.model);
              }),
              HasSubstr("expected forward_backward() to train a model with an axis of stages"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { training.model.primary()->clone(); }),
              HasSubstr("not cut along an axis"));
}

TEST(StagedGptErrorsTest, ErrorsNameTheStageAndTheMicroBatchAndTheNextStepIsExact) {
  const GptOptions options = cut_gpts()[0].options;
  MirroredStrategy whole_strategy(cpu_devices(1), cut_gpt_strategy(Mesh{{"data", 1}}));
  CutGptTraining whole(whole_strategy, options);
  MirroredStrategy strategy(cpu_devices(2), cut_gpt_strategy(parse_mesh("pipeline=2")));
  CutGptTraining staged(strategy, options);
  for (int step = 0; step < 2; ++step)
    ASSERT_NEAR(staged.step(step), whole.step(step), kStagedTolerance) << "step " << step;
  EXPECT_THAT(message_of<c10::Error>([&] {
                strategy.run(
                    [](ReplicaContext& replica, Gpt& gpt) {
                      const auto tokens = tokens_of_step(0, gpt->options());
                      auto targets = tokens.narrow(1, 1, 4).clone();
                      targets[3] = 1000;  // no token: of the last stage's second micro-batch
                      gpt->forward_backward(replica, tokens.narrow(1, 0, 4), targets);
                    },
                    staged.model);
              }),
              AllOf(HasSubstr("forward of stage 1 for micro-batch 1"), HasSubstr("1000")));
  strategy.restore_consistency(staged.model, staged.adam);
  for (int step = 2; step < 4; ++step)
    ASSERT_NEAR(staged.step(step), whole.step(step), kStagedTolerance) << "step " << step;
}

}  // namespace
}  // namespace lockstep
