// Models of which the ranks along a context axis have different tokens. Oracle: the whole model on one
// device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/models/gpt/gpt_generation.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/tests/models/gpt/cut_gpts.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kContextSteps = compared_steps(20);
// Of a training that differs from a longer one only by where its ranks run, or by recomputed blocks.
constexpr int kFewContextSteps = compared_steps(6);
constexpr double kContextTolerance = 1e-12;

/// A division of the training of a model.
struct ContextGptCase {
  const char* mesh;
  int64_t length;  ///< of sequences
  int stage = 0;
  bool shards_sequences = false;
};

std::string name_of_context_case(const ContextGptCase& of) {
  std::string name = of.mesh;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '=' || c == ','; }, '_');
  name += "_of_" + std::to_string(of.length);
  if (of.stage > 0) name += "_stage_" + std::to_string(of.stage);
  return name + (of.shards_sequences ? "_on_shards" : "");
}

/// A training of the whole model: its losses, and the model at the end.
struct WholeContextRun {
  explicit WholeContextRun(const GptOptions& options, int steps = kContextSteps) {
    MirroredStrategy strategy(cpu_devices(1), cut_gpt_strategy({{"data", 1}}));
    CutGptTraining training(strategy, options);
    for (int step = 0; step < steps; ++step) losses.push_back(training.step(step));
    EXPECT_LT(losses.back(), losses.front());
    model = training.model.primary();
  }

  Gpt model{nullptr};
  std::vector<double> losses;
};

void expect_context_run(Strategy& strategy, const WholeContextRun& whole, const ContextGptCase& of,
                        ContextMethod method, const GptBlockRunner& runner = {}) {
  CutGptTraining own(strategy, whole.model->options(), runner, {.shard_sequence = of.shards_sequences},
                     method);
  for (size_t step = 0; step < whole.losses.size(); ++step)
    ASSERT_NEAR(own.step(static_cast<int>(step)), whole.losses[step], kContextTolerance) << "step " << step;
  for (const auto& model : own.model.local_values())
    EXPECT_LE(difference_from_whole(model, whole.model), kContextTolerance);
}

class ContextGptTest : public testing::TestWithParam<std::tuple<NamedGpt, ContextGptCase>> {
 protected:
  static ContextGptCase layout() { return std::get<1>(GetParam()); }
  static GptOptions options() {
    GptOptions own = std::get<0>(GetParam()).options;
    own.max_length = layout().length + 1;
    return own;
  }
  /// Trained once for all layouts of sequences of this length.
  static const WholeContextRun& whole_run(int steps) {
    static std::map<std::tuple<std::string, int64_t, int>, WholeContextRun> runs;
    return runs.try_emplace({std::get<0>(GetParam()).name, layout().length, steps}, options(), steps)
        .first->second;
  }
  static Mesh mesh() { return parse_mesh(layout().mesh); }
  static StrategyOptions strategy_options() {
    auto made = cut_gpt_strategy(mesh(), layout().stage);
    made.timeout = std::chrono::minutes(2);
    return made;
  }
};

TEST_P(ContextGptTest, TrainsAsTheWholeModel) {
  const auto& whole = whole_run(kContextSteps);
  for (const auto method : {ContextMethod::kRing, ContextMethod::kAllToAll}) {
    SCOPED_TRACE(static_cast<int>(method));
    MirroredStrategy strategy(cpu_devices(mesh().size()), strategy_options());
    expect_context_run(strategy, whole, layout(), method);
  }
}

TEST_P(ContextGptTest, TrainsAsTheWholeModelWithRecomputedBlocks) {
  const auto& whole = whole_run(kFewContextSteps);
  MirroredStrategy strategy(cpu_devices(mesh().size()), strategy_options());
  expect_context_run(strategy, whole, layout(), ContextMethod::kRing,
                     [](const auto& block, const auto& x) { return recompute(block, x); });
}

TEST_P(ContextGptTest, TrainsAsTheWholeModelOverWorkers) {
  const auto& whole = whole_run(kFewContextSteps);
  const int ranks = mesh().size();
  for (const auto method : {ContextMethod::kRing, ContextMethod::kAllToAll}) {
    SCOPED_TRACE(static_cast<int>(method));
    expect_no_worker_failed(run_strategies(
        {ranks / 2, ranks - ranks / 2},
        [&](MultiWorkerMirroredStrategy& strategy) { expect_context_run(strategy, whole, layout(), method); },
        [&](int, WorkerSetUp& set_up) { set_up.options = strategy_options(); }));
  }
}

const std::vector<ContextGptCase> kContextCases{{"context=2", 11},
                                                {"data=2,context=2", 10},
                                                {"context=4", 5},
                                                {"context=2,tensor=2", 9},
                                                {"context=2,tensor=2", 8, 0, true},
                                                {"shard=2,context=2", 7, 3},
                                                {"data=1,context=2,tensor=2", 8, 1, true}};

INSTANTIATE_TEST_SUITE_P(Layouts, ContextGptTest, testing::ValuesIn(pairs_to_test(cut_gpts(), kContextCases)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  name_of_context_case(std::get<1>(info.param));
                         });

TEST(ContextGptMeshTest, EightRanksOfThreeAxesTrainAsTheWholeModelInEachStage) {
  GptOptions options = cut_gpts()[1].options;
  options.max_length = 9;
  WholeContextRun whole(options);
  for (const int stage : {0, 2, 3}) {
    SCOPED_TRACE(stage);
    const ContextGptCase of{"data=2,context=2,tensor=2", 8, stage, true};
    MirroredStrategy strategy(cpu_devices(8), cut_gpt_strategy(parse_mesh(of.mesh), stage));
    expect_context_run(strategy, whole, of, ContextMethod::kRing,
                       [](const auto& block, const auto& x) { return recompute(block, x); });
  }
}

TEST(ContextGptMeshTest, AContextAxisShardsParametersToo) {
  GptOptions options = cut_gpts()[0].options;
  WholeContextRun whole(options);
  for (const int stage : {1, 3}) {
    SCOPED_TRACE(stage);
    MirroredStrategy strategy(cpu_devices(2), cut_gpt_strategy({{"context", 2}}, stage));
    EXPECT_EQ(strategy.sharding().axis, "context");
    expect_context_run(strategy, whole, {"context=2", 11, stage}, ContextMethod::kAllToAll);
  }
}

TEST(ContextGptResultsTest, LogitsAreThoseOfTheRanksTokens) {
  for (const auto& [name, options] : cut_gpts()) {
    SCOPED_TRACE(name);
    const auto logits_of = [](ReplicaContext&, Gpt& gpt) {
      const torch::NoGradGuard no_grad;
      return gpt(tokens_of_step(0, gpt->options()));
    };
    MirroredStrategy whole_strategy(cpu_devices(1), cut_gpt_strategy({{"data", 1}}));
    CutGptTraining whole(whole_strategy, options);
    const auto expected = whole_strategy.run(logits_of, whole.model)[0];
    MirroredStrategy strategy(cpu_devices(2), cut_gpt_strategy({{"context", 2}}));
    CutGptTraining own(strategy, options);
    const auto logits = strategy.run(logits_of, own.model);
    for (size_t rank = 0; rank < 2; ++rank) {
      const auto order = own.model.local_values()[rank]->token_order(expected.size(1));
      EXPECT_EQ(order.index(), static_cast<int>(rank));
      EXPECT_TRUE(
          torch::allclose(logits[rank], order.own_part(expected, 1), kContextTolerance, kContextTolerance))
          << rank;
    }
    EXPECT_EQ(whole.model.primary()->token_order(12).tokens_of(0), 12);
  }
}

TEST(ContextGptResultsTest, EachRankGeneratesTheTokensOfTheWholeModel) {
  const auto tokens_of = [](ReplicaContext&, Gpt& gpt) {
    return generate(gpt, {{1, 5, 9}, {2}, {30, 31, 0, 7, 7}}, {.max_new_tokens = 6, .temperature = 0});
  };
  for (const auto& [name, options] : cut_gpts()) {
    SCOPED_TRACE(name);
    MirroredStrategy whole_strategy(cpu_devices(1), cut_gpt_strategy({{"data", 1}}));
    CutGptTraining whole(whole_strategy, options);
    const auto expected = whole_strategy.run(tokens_of, whole.model)[0];
    for (const char* mesh : {"context=2", "context=2,tensor=2"}) {
      MirroredStrategy strategy(cpu_devices(parse_mesh(mesh).size()), cut_gpt_strategy(parse_mesh(mesh)));
      CutGptTraining own(strategy, options);
      const auto generated = strategy.run(tokens_of, own.model);
      for (const auto& tokens : generated.local_values()) EXPECT_EQ(tokens, expected);
    }
  }
}

std::string error_of_context(const Mesh& mesh, const GptOptions& options, ContextMethod method,
                             const std::string& axis = "context") {
  MirroredStrategy strategy(cpu_devices(mesh.size()), cut_gpt_strategy(mesh));
  return message_of<InvalidArgument>([&] {
    strategy.scope([&](ReplicaContext& replica) {
      return Gpt(options, GptAxes{.parts = mesh.has("tensor") ? &replica.axis("tensor") : nullptr,
                                  .tokens = &replica.axis(axis),
                                  .context_method = method});
    });
  });
}

TEST(ContextGptErrorsTest, ModelsThatTheAxisCannotCutAreRefused) {
  const GptOptions options = cut_gpts()[0].options;
  GptOptions dropping = options;
  dropping.residual_dropout = 0.1;
  EXPECT_THAT(error_of_context({{"context", 2}}, dropping, ContextMethod::kRing),
              AllOf(HasSubstr("[Gpt]"), HasSubstr("no dropout"), HasSubstr("residual_dropout 0.1")));
  MirroredStrategy alone(cpu_devices(1), cut_gpt_strategy({{"context", 1}}));
  EXPECT_NO_THROW(alone.scope(
      [&](ReplicaContext& replica) { return Gpt(dropping, GptAxes{.tokens = &replica.axis("context")}); }));
  EXPECT_THAT(
      error_of_context({{"context", 3}}, options, ContextMethod::kAllToAll),
      HasSubstr("num_heads that the 3 ranks along the axis context divide, but got 4: 3 or 6 would do"));
  EXPECT_THAT(error_of_context({{"context", 4}, {"tensor", 2}}, options, ContextMethod::kAllToAll),
              HasSubstr("num_heads of each part that the 4 ranks"));
  EXPECT_THAT(error_of_context({{"data", 2}}, options, ContextMethod::kRing, "data"),
              AllOf(HasSubstr("[Gpt]"), HasSubstr("sequences are cut")));
}

TEST(ContextGptErrorsTest, LengthsThatThePartsOfATokensRankDoNotDivideAreRefused) {
  MirroredStrategy strategy(cpu_devices(4), cut_gpt_strategy({{"context", 2}, {"tensor", 2}}));
  CutGptTraining own(strategy, cut_gpts()[0].options, {}, {.shard_sequence = true});
  const auto message = message_of<InvalidArgument>([&] {
    strategy.run([](ReplicaContext&, Gpt& gpt) { gpt(torch::zeros({2, 10}, torch::kLong)); }, own.model);
  });
  EXPECT_THAT(message, AllOf(HasSubstr("2 ranks along the axis tensor and the 2 along context"),
                             HasSubstr("got sequences of 10 tokens: 8 or 12 would do")));
}

TEST(ContextGptErrorsTest, AModelOfPartOfTheTokensIsNotCloned) {
  MirroredStrategy strategy(cpu_devices(2), cut_gpt_strategy({{"context", 2}}));
  CutGptTraining own(strategy, cut_gpts()[0].options);
  EXPECT_THAT(message_of<InvalidArgument>([&] { own.model.primary()->clone(); }), HasSubstr("clone"));
}

}  // namespace
}  // namespace lockstep
