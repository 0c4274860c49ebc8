// Averages of sharded weights. Oracle: the averages of the training without sharding.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "lockstep/tests/support/after_step.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/training/trainer/sharded_fit.h"
#include "lockstep/training/averaging/exponential_moving_average.h"
#include "lockstep/training/averaging/internal/averaged_weights.h"
#include "lockstep/training/averaging/stochastic_weight_averaging.h"
#include "lockstep/training/callbacks/backup_and_restore.h"

namespace lockstep {
namespace {

using testing::expect_near;
using testing::sharded_layouts;
using testing::ShardedLayout;
using testing::TemporaryFolder;
using testing::with_fit;
using testing::with_fit_of_workers;

constexpr int64_t kEpochsOfAverages = 3;

std::shared_ptr<Callback> moving_average() {
  return std::make_shared<ExponentialMovingAverage>(ExponentialMovingAverageOptions{.decay = 0.75});
}
std::shared_ptr<Callback> mean_of_epochs() {
  return std::make_shared<StochasticWeightAveraging>(
      StochasticWeightAveragingOptions{.start_epoch = 2, .evaluate_every_epoch = true});
}

using MakeAverage = std::shared_ptr<Callback> (*)();

class ShardedAveraging : public ::testing::TestWithParam<MakeAverage> {
 protected:
  /// The weights of a fit that is not sharded.
  static NamedTensors expected(int replicas, bool is_averaged = true) {
    NamedTensors weights;
    with_fit(sharded_layouts(replicas).front(), [&](auto& fit) {
      fit.fit(kEpochsOfAverages, is_averaged ? Callbacks{GetParam()()} : Callbacks{});
      weights = fit.weights();
    });
    return weights;
  }
};

INSTANTIATE_TEST_SUITE_P(Kinds, ShardedAveraging, ::testing::Values(moving_average, mean_of_epochs));

TEST_P(ShardedAveraging, EqualsThatOfWholeWeights) {
  for (const int replicas : {2, 4}) {
    const NamedTensors average = expected(replicas);
    const NamedTensors last = expected(replicas, false);
    EXPECT_GT((average.front().second - last.front().second).abs().max().item<double>(), 1e-4);
    for (const auto& layout : sharded_layouts(replicas)) {
      SCOPED_TRACE(layout.str());
      with_fit(layout, [&](auto& fit) {
        fit.fit(kEpochsOfAverages, {GetParam()()});
        expect_near(fit.weights(), average);
      });
    }
  }
}

TEST_P(ShardedAveraging, ResumesInAnyLayout) {
  const NamedTensors average = expected(4);
  for (const auto& writer : sharded_layouts(4)) {
    for (const auto& reader : sharded_layouts(4)) {
      if (writer.stage < 3 && reader.stage < 3) continue;
      SCOPED_TRACE(writer.str() + " read by " + reader.str());
      const TemporaryFolder folder;
      const auto backup = [&] {
        return std::make_shared<BackupAndRestore>(
            BackupOptions{.folder = folder.path() + "/b", .on_message = [](const std::string&) {}});
      };
      with_fit(writer, [&](auto& fit) {
        fit.fit(kEpochsOfAverages, {GetParam()(), testing::interrupt_after(13), backup()});
      });
      with_fit(reader, [&](auto& fit) {
        fit.fit(kEpochsOfAverages, {GetParam()(), backup()});
        expect_near(fit.weights(), average);
      });
    }
  }
}

TEST_P(ShardedAveraging, IsSavedAndResumedByAllWorkers) {
  const NamedTensors average = expected(4);
  for (const auto& layout : sharded_layouts(4)) {
    SCOPED_TRACE(layout.str());
    const TemporaryFolder folder;
    const auto fit_once = [&](std::optional<int64_t> ends) {
      with_fit_of_workers(layout, [&](auto& fit) {
        Callbacks callbacks{GetParam()()};
        if (ends) callbacks.push_back(testing::interrupt_after(*ends));
        callbacks.push_back(std::make_shared<BackupAndRestore>(
            BackupOptions{.folder = folder.path() + "/b", .on_message = [](const std::string&) {}}));
        fit.fit(kEpochsOfAverages, callbacks);
        if (ends) return;
        const NamedTensors weights = fit.weights();
        if (fit.strategy.first_local_replica() == 0) expect_near(weights, average);
      });
    };
    fit_once(13);
    fit_once(std::nullopt);
  }
}

TEST(ShardedAveragedWeights, AreNotFiniteOnAnyWorkerIfOneShardIsNot) {
  const ShardedLayout layout{Mesh{{"shard", 2}}, 3};
  with_fit_of_workers(layout, [](auto& fit) {
    std::vector<ModulePointer> modules = module_pointers(fit.trainer.model().local_values());
    const FitState::Objects objects{
        .strategy = fit.strategy, .modules = modules, .optimizers = {}, .scalers = {}};
    AveragedWeights average;
    average.update(objects, 1, AveragedBuffers::kAverage);
    EXPECT_TRUE(average.is_finite(objects));
    average.clear();
    const torch::NoGradGuard no_grad;
    // Only the last worker has this element.
    const auto shards = modules.front()->parameters();
    for (const auto& shard : shards) {
      const auto* place = sharded_parameter_of(shard);
      if (place == nullptr || place->sizes.size() != 2) continue;
      if (place->length > 0 && place->offset + place->length == place->num_elements())
        shard.detach()[place->length - 1] = NAN;
    }
    average.update(objects, 1, AveragedBuffers::kAverage);
    EXPECT_FALSE(average.is_finite(objects)) << "replica " << fit.strategy.first_local_replica();
  });
}

}  // namespace
}  // namespace lockstep
