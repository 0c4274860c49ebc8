// Random nets, sharded in random ways, train as on one device. LOCKSTEP_RANDOM_TRAININGS sets the number of
// seeds; a failure prints the seed, the training, and a simpler one that fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "lockstep/tests/equivalence/random_training.h"
#include "lockstep/tests/support/sanitizer.h"

namespace lockstep {
namespace {

using Kind = LayerPlan::Kind;

constexpr int kUsualTrainings = 60;

int num_trainings() {
  const char* number = std::getenv("LOCKSTEP_RANDOM_TRAININGS");  // NOLINT(concurrency-mt-unsafe)
  return number != nullptr ? std::max(1, std::stoi(number)) : few_if_sanitized(kUsualTrainings, 20);
}

class RandomTrainings : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomTrainings, testing::Range(0, num_trainings()));

TEST_P(RandomTrainings, EqualThoseOnOneDevice) {
  const auto training = random_training(static_cast<unsigned>(GetParam()));
  const std::string problem = training.problem();
  if (problem.empty()) return;
  const auto simplest =
      shrunk(training, [](const RandomTraining& simpler) { return !simpler.problem().empty(); });
  FAIL() << problem << "\nof seed " << GetParam() << ", " << training.str()
         << "\nSimplest: " << simplest.problem() << "\nof " << simplest.str();
}

bool has_layer(const RandomTraining& training, const std::function<bool(const LayerPlan&)>& test) {
  return any_layer(training.net, test);
}
bool is_unit_in_unit(const LayerPlan& layer) {
  return layer.is_unit && std::any_of(layer.layers.begin(), layer.layers.end(), [](const auto& inner) {
           return any_layer(inner, [](const auto& any) { return any.is_unit; });
         });
}

TEST(RandomTrainingsTest, TheUsualSeedsHaveEachFeatureSeveralTimes) {
  std::map<std::string, int> counts;
  for (unsigned seed = 0; seed < kUsualTrainings; ++seed) {
    const auto training = random_training(seed);
    const auto& layout = training.layout;
    const auto batches = training.sizes_of_batches();
    counts["stage " + std::to_string(layout.stage)]++;
    counts["workers"] += layout.workers.size() > 1;
    counts["hybrid"] += layout.mesh.has("shard") && layout.mesh.axes()[0].size == 2 && layout.replicas() == 4;
    counts["several optimizers"] += training.optimizers.size() > 1;
    counts["fused"] += std::count(training.optimizers.begin(), training.optimizers.end(), "fused_adamw");
    counts["clipped"] += training.clip_norm.has_value();
    counts["uneven"] +=
        std::any_of(batches.begin(), batches.end(), [&](int64_t size) { return size != batches[0]; });
    counts["empty shards"] +=
        std::any_of(batches.begin(), batches.end(), [&](int64_t size) { return size < layout.replicas(); });
    counts["micro-batches"] += training.micro_batches > 1;
    counts["freezing"] += training.freezing_step >= 0;
    const bool has_units = layout.stage == 3;
    counts["overlap"] += has_units && layout.overlaps;
    counts["no overlap"] += has_units && !layout.overlaps;
    counts["units in units"] += has_units && has_layer(training, is_unit_in_unit);
    counts["sequences"] +=
        has_units && has_layer(training, [](const auto& layer) { return layer.kind == Kind::kSequence; });
    counts["sharing"] += has_layer(training, [](const auto& layer) { return layer.kind == Kind::kAgain; });
    counts["batch norms"] +=
        has_layer(training, [](const auto& layer) { return layer.kind == Kind::kBatchNorm; });
    counts["layer norms"] +=
        has_layer(training, [](const auto& layer) { return layer.kind == Kind::kLayerNorm; });
    counts["frozen"] += has_layer(training, [](const auto& layer) { return layer.is_frozen; });
    counts["recomputed units"] += has_units && has_layer(training, [](const auto& layer) {
                                    return layer.is_unit && layer.is_recomputed;
                                  });
    counts["used twice"] += has_layer(training, [](const auto& layer) { return layer.is_used_twice; });
  }
  for (const auto& [feature, count] : counts) EXPECT_GE(count, 3) << feature;
}

TEST(RandomTrainingsTest, AFailureIsShrunkToTheSimplestThatFails) {
  const auto fails = [](const RandomTraining& training) {
    return training.layout.stage >= 2 && training.layout.replicas() > 1 && training.clip_norm &&
           has_layer(training, is_unit_in_unit);
  };
  int num_shrunk = 0;
  for (unsigned seed = 0; seed < kUsualTrainings; ++seed) {
    const auto training = random_training(seed);
    if (!fails(training)) continue;
    ++num_shrunk;
    const auto simplest = shrunk(training, fails, 10000);
    EXPECT_EQ(simplest.layout.str(), (ParityLayout{.workers = {2}, .stage = 2, .overlaps = false}.str()));
    EXPECT_EQ(simplest.optimizers, std::vector<std::string>{"sgd"});
    EXPECT_EQ(simplest.steps * simplest.batch_size * simplest.num_examples * simplest.micro_batches, 1);
    EXPECT_TRUE(simplest.clip_norm);
    int num_layers = 0;
    any_layer(simplest.net, [&](const auto&) { return ++num_layers < 0; });
    EXPECT_EQ(num_layers, 2) << simplest.str();
  }
  EXPECT_GE(num_shrunk, 3);
}

}  // namespace
}  // namespace lockstep
