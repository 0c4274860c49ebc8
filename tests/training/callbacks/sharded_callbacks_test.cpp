// Callbacks that keep states of a training, with sharded ones. Oracle: the training without sharding, or one
// that never made the steps that a callback takes back.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/tests/support/after_step.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/training/trainer/sharded_fit.h"
#include "lockstep/training/callbacks/backup_and_restore.h"
#include "lockstep/training/callbacks/early_stopping.h"
#include "lockstep/training/callbacks/learning_rate_finder.h"
#include "lockstep/training/callbacks/model_checkpoint.h"
#include "lockstep/training/callbacks/nan_guard.h"
#include "lockstep/training/state/state_dict.h"

namespace lockstep {
namespace {

using testing::expect_near;
using testing::fit_examples;
using testing::kFitBatch;
using testing::sharded_layouts;
using testing::ShardedLayout;
using testing::TemporaryFolder;
using testing::with_fit;
using testing::with_fit_of_workers;

std::shared_ptr<NanGuard> skipping_guard() {
  return std::make_shared<NanGuard>(
      NanGuardOptions{.action = NotFiniteAction::kSkip, .on_message = [](const std::string&) {}});
}

/// Sets a value of the third and fifth batch to NaN, in a row of the last replica.
Example broken_examples() {
  Example broken = fit_examples();
  for (const int64_t batch : {2, 4}) broken.data[batch * kFitBatch + kFitBatch - 1][1] = NAN;
  return broken;
}

Example unbroken_batches() {
  const Example all = fit_examples();
  const auto without = [](const torch::Tensor& rows) {
    return torch::cat({rows.narrow(0, 0, 2 * kFitBatch), rows.narrow(0, 3 * kFitBatch, kFitBatch)});
  };
  return {without(all.data), without(all.target)};
}

TEST(ShardedNanGuard, UndoesStepsAsIfTheyHadNeverBeenMade) {
  for (const int replicas : {2, 4}) {
    NamedTensors expected;
    with_fit(sharded_layouts(replicas).front(), [&](auto& fit) {
      fit.fit(2, {}, unbroken_batches());
      expected = fit.weights();
    });
    for (const auto& layout : sharded_layouts(replicas)) {
      SCOPED_TRACE(layout.str());
      with_fit(layout, [&](auto& fit) {
        const auto guard = skipping_guard();
        fit.fit(2, {guard}, broken_examples());
        EXPECT_EQ(guard->num_undone(), 4);
        expect_near(fit.weights(), expected);
      });
    }
  }
}

TEST(ShardedNanGuard, UndoesStepsOfAllWorkers) {
  NamedTensors expected;
  with_fit(sharded_layouts(4).front(), [&](auto& fit) {
    fit.fit(1, {}, unbroken_batches());
    expected = fit.weights();
  });
  for (const auto& layout : sharded_layouts(4)) {
    SCOPED_TRACE(layout.str());
    with_fit_of_workers(layout, [&](auto& fit) {
      fit.fit(1, {skipping_guard()}, broken_examples());
      const NamedTensors weights = fit.weights();
      if (fit.strategy.first_local_replica() == 0) expect_near(weights, expected);
    });
  }
}

TEST(ShardedLearningRateFinder, SeesTheSameLossesAndPutsEverythingBackToTheBit) {
  const LearningRateFinderOptions options{.min_learning_rate = 1e-4, .max_learning_rate = 1, .steps = 8};
  for (const int replicas : {2, 4}) {
    std::optional<LearningRateSweep> expected;
    for (const auto& layout : sharded_layouts(replicas)) {
      SCOPED_TRACE(layout.str());
      NamedTensors plain;
      with_fit(layout, [&](auto& fit) {
        fit.fit(1, {});
        fit.fit(1, {}, fit_examples(), 1);
        plain = fit.weights();
      });
      with_fit(layout, [&](auto& fit) {
        fit.fit(1, {});
        const auto examples = fit_examples();
        auto batches = fit.strategy.distribute_dataset(detail::TensorPairs(examples.data, examples.target),
                                                       {.global_batch_size = kFitBatch});
        const auto sweep = find_learning_rate(fit.trainer, batches, options);
        ASSERT_EQ(sweep.losses.size(), 8U);
        EXPECT_GT(std::abs(sweep.losses.front() - sweep.losses.back()), 1e-3);
        if (!expected) expected = sweep;
        for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(sweep.losses[i], expected->losses[i], 1e-11);
        fit.fit(1, {}, examples, 1);
        expect_near(fit.weights(), plain, 0);
      });
    }
  }
}

/// Adds a score to the logs that is highest in the second epoch.
class Score : public Callback {
 public:
  void on_epoch_trained(FitState& state) override {
    state.logs.set("score", state.epoch == 2 ? 1.0 : 1.0 / static_cast<double>(1 + state.epoch));
  }
};

Callbacks stop_after_the_second(int64_t patience = 2) {
  return {std::make_shared<Score>(), std::make_shared<EarlyStopping>(EarlyStoppingOptions{
                                         .monitor = {.name = "score", .mode = MonitorMode::kMax},
                                         .patience = patience,
                                         .restore_best = true})};
}

NamedTensors weights_after(const ShardedLayout& layout, int64_t epochs) {
  NamedTensors weights;
  with_fit(layout, [&](auto& fit) {
    fit.fit(epochs, {});
    weights = fit.weights();
  });
  return weights;
}

TEST(ShardedEarlyStopping, PutsTheBestEpochsWeightsBackToTheBit) {
  for (const int replicas : {2, 4}) {
    for (const auto& layout : sharded_layouts(replicas)) {
      SCOPED_TRACE(layout.str());
      const NamedTensors expected = weights_after(layout, 2);
      with_fit(layout, [&](auto& fit) {
        const auto history = fit.fit(9, stop_after_the_second());
        EXPECT_EQ(history.epochs.size(), 4U);
        expect_near(fit.weights(), expected, 0);
      });
    }
  }
}

TEST(ShardedEarlyStopping, ResumesWithTheBestWeightsInAnyLayout) {
  const NamedTensors expected = weights_after(sharded_layouts(4).front(), 2);
  for (const auto& writer : sharded_layouts(4)) {
    for (const auto& reader : sharded_layouts(4)) {
      if (writer.stage < 2 && reader.stage < 2) continue;
      SCOPED_TRACE(writer.str() + " read by " + reader.str());
      const TemporaryFolder folder;
      const auto backup = [&] {
        return std::make_shared<BackupAndRestore>(
            BackupOptions{.folder = folder.path() + "/b", .on_message = [](const std::string&) {}});
      };
      with_fit(writer, [&](auto& fit) {
        Callbacks callbacks = stop_after_the_second();
        callbacks.push_back(testing::interrupt_after(12));  // in the third epoch
        callbacks.push_back(backup());
        fit.fit(9, callbacks);
      });
      with_fit(reader, [&](auto& fit) {
        Callbacks callbacks = stop_after_the_second();
        callbacks.push_back(backup());
        fit.fit(9, callbacks);
        expect_near(fit.weights(), expected);
      });
    }
  }
}

TEST(ShardedEarlyStopping, SavesTheBestWeightsOfAllWorkers) {
  const NamedTensors expected = weights_after(sharded_layouts(4).front(), 2);
  for (const auto& layout : sharded_layouts(4)) {
    for (const bool is_sharded : {false, true}) {
      SCOPED_TRACE(layout.str());
      const TemporaryFolder folder;
      const auto fit_once = [&](std::optional<int64_t> ends) {
        with_fit_of_workers(layout, [&](auto& fit) {
          Callbacks callbacks = stop_after_the_second();
          if (ends) callbacks.push_back(testing::interrupt_after(*ends));
          callbacks.push_back(std::make_shared<BackupAndRestore>(BackupOptions{
              .folder = folder.path() + "/b", .sharded = is_sharded, .on_message = [](const std::string&) {
              }}));
          fit.fit(9, callbacks);
          if (ends) return;
          const NamedTensors weights = fit.weights();
          if (fit.strategy.first_local_replica() == 0) expect_near(weights, expected);
        });
      };
      fit_once(12);
      fit_once(std::nullopt);
    }
  }
}

TEST(ShardedModelCheckpoint, SavesWholeWeightsAndStates) {
  for (const int replicas : {2, 4}) {
    const NamedTensors expected = weights_after(sharded_layouts(replicas).front(), 2);
    for (const auto& layout : sharded_layouts(replicas)) {
      SCOPED_TRACE(layout.str());
      const TemporaryFolder folder;
      with_fit_of_workers(layout, [&](auto& fit) {
        const auto checkpoint = std::make_shared<ModelCheckpoint>(
            ModelCheckpointOptions{.folder = folder.path(), .save_best = false});
        fit.fit(2, {checkpoint});
      });
      for (const char* name : {"last.safetensors", "last.pt"}) {
        testing::WholeFitNet net;
        load_state_dict(*net, load_weights(folder.file(name)));
        expect_near(state_dict(*net), expected);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
