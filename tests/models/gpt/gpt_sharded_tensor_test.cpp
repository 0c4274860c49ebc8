// Models that are cut along an axis of the mesh, and sharded over another one. Oracle: the whole model on one
// device.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/models/gpt/gpt_generation.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/tests/models/gpt/cut_gpts.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

constexpr int kShardedGptSteps = compared_steps(20);
// Of a training that differs from a longer one only by where its ranks run, or by recomputed blocks.
constexpr int kFewShardedGptSteps = compared_steps(6);
constexpr double kShardedGptTolerance = 1e-12;

/// A division of a model.
struct ShardedGptCase {
  const char* mesh;
  int stage;
  bool has_shards_of_sequences;
};

std::string name_of_layout(const ShardedGptCase& layout) {
  std::string name = layout.mesh;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '=' || c == ','; }, '_');
  return name + "_stage_" + std::to_string(layout.stage) +
         (layout.has_shards_of_sequences ? "_on_shards" : "");
}

/// A training of the whole model: its losses, and the model at the end.
struct WholeGptRun {
  WholeGptRun(const GptOptions& options, int steps) {
    MirroredStrategy strategy(cpu_devices(1), cut_gpt_strategy({{"data", 1}}));
    CutGptTraining training(strategy, options);
    for (int step = 0; step < steps; ++step) losses.push_back(training.step(step));
    EXPECT_LT(losses.back(), losses.front());
    model = training.model.primary();
  }

  Gpt model{nullptr};
  std::vector<double> losses;
};

void expect_run(Strategy& strategy, const WholeGptRun& whole, const ShardedGptCase& layout,
                const GptBlockRunner& runner) {
  CutGptTraining cut(strategy, whole.model->options(), runner,
                     {.shard_sequence = layout.has_shards_of_sequences});
  for (size_t step = 0; step < whole.losses.size(); ++step)
    ASSERT_NEAR(cut.step(static_cast<int>(step)), whole.losses[step], kShardedGptTolerance)
        << "step " << step;
  for (const auto& own : cut.model.local_values())
    EXPECT_LE(difference_from_whole(own, whole.model), kShardedGptTolerance);
}

class ShardedCutGptTest : public testing::TestWithParam<std::tuple<NamedGpt, ShardedGptCase>> {
 protected:
  static GptOptions options() {
    GptOptions own = std::get<0>(GetParam()).options;
    own.max_length = 9;  // One more than the length of sequences, which ranks divide.
    return own;
  }
  /// Trained once for all layouts.
  static const WholeGptRun& whole_run(int steps) {
    static std::map<std::pair<std::string, int>, WholeGptRun> runs;
    return runs.try_emplace({std::get<0>(GetParam()).name, steps}, options(), steps).first->second;
  }
  static ShardedGptCase layout() { return std::get<1>(GetParam()); }
  static StrategyOptions strategy_options() {
    auto made = cut_gpt_strategy(parse_mesh(layout().mesh), layout().stage);
    made.timeout = std::chrono::minutes(2);
    return made;
  }
};

TEST_P(ShardedCutGptTest, TrainsAsTheWholeModel) {
  for (const bool recomputes : {false, true}) {
    SCOPED_TRACE(recomputes);
    const auto& whole = whole_run(recomputes ? kFewShardedGptSteps : kShardedGptSteps);
    MirroredStrategy strategy(cpu_devices(parse_mesh(layout().mesh).size()), strategy_options());
    expect_run(
        strategy, whole, layout(),
        recomputes ? [](const auto& block, const auto& x) { return recompute(block, x); } : GptBlockRunner());
  }
}

TEST_P(ShardedCutGptTest, TrainsAsTheWholeModelOverWorkers) {
  const auto& whole = whole_run(kFewShardedGptSteps);
  const int ranks = parse_mesh(layout().mesh).size();
  for (const auto& workers :
       {std::vector<int>(static_cast<size_t>(ranks), 1), std::vector<int>{ranks / 2, ranks - ranks / 2}}) {
    SCOPED_TRACE(testing::Message() << workers.size() << " workers");
    expect_no_worker_failed(run_strategies(
        workers, [&](MultiWorkerMirroredStrategy& strategy) { expect_run(strategy, whole, layout(), {}); },
        [&](int, WorkerSetUp& set_up) { set_up.options = strategy_options(); }));
  }
}

const std::vector<ShardedGptCase> kShardedGptCases{{"shard=2,tensor=2", 1, false},
                                                   {"data=2,tensor=2", 2, true},
                                                   {"shard=2,tensor=2", 3, false},
                                                   {"tensor=2,shard=2", 3, true}};

INSTANTIATE_TEST_SUITE_P(Layouts, ShardedCutGptTest,
                         testing::ValuesIn(pairs_to_test(cut_gpts(), kShardedGptCases)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  name_of_layout(std::get<1>(info.param));
                         });

TEST(ShardedCutGptGenerationTest, RanksGenerateTheTokensOfTheWholeModelTogether) {
  const auto tokens_of = [](ReplicaContext&, Gpt& gpt) {
    const std::vector<std::vector<int64_t>> prompts = {{1, 5, 9}, {2}, {30, 31, 0, 7, 7}};
    return generate(gpt, prompts, {.max_new_tokens = 6, .temperature = 0});
  };
  for (const auto& [name, options] : cut_gpts()) {
    SCOPED_TRACE(name);
    MirroredStrategy whole_strategy(cpu_devices(1), cut_gpt_strategy({{"data", 1}}));
    CutGptTraining whole(whole_strategy, options);
    const auto expected = whole_strategy.run(tokens_of, whole.model)[0];
    MirroredStrategy strategy(cpu_devices(4), cut_gpt_strategy({{"shard", 2}, {"tensor", 2}}, 3));
    CutGptTraining cut(strategy, options);
    const auto generated = strategy.run(tokens_of, cut.model);
    for (const auto& tokens : generated.local_values()) EXPECT_EQ(tokens, expected);
  }
}

}  // namespace
}  // namespace lockstep
