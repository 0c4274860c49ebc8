// Weights of sharded models in files. Oracle: those of the same training without sharding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/training/trainer/sharded_fit.h"
#include "lockstep/training/checkpoints/weights_file.h"
#include "lockstep/training/state/state_dict.h"

namespace lockstep {
namespace {

using testing::expect_near;
using ::testing::HasSubstr;
using testing::sharded_layouts;
using testing::TemporaryFolder;
using testing::with_fit;
using testing::with_fit_of_workers;

/// The weights after an epoch, in the order of the state_dict.
NamedTensors weights_without_sharding(int replicas) {
  NamedTensors weights;
  with_fit(sharded_layouts(replicas).front(), [&](auto& fit) {
    fit.fit(1, {});
    weights = fit.weights();
    // Each replica has statistics of its own, whose mean is saved.
    const auto& models = fit.trainer.model().local_values();
    for (const auto& [name, tensor] : weights) {
      if (name != "first.norm.running_mean") continue;
      auto mean = torch::zeros_like(tensor);
      for (const auto& model : models) mean += model->named_buffers()["first.norm.running_mean"].cpu();
      EXPECT_TRUE(torch::allclose(tensor, mean / replicas, 0, 1e-15));
    }
  });
  return weights;
}

TEST(ShardedWeights, AreSavedWholeByThreadsAndByWorkers) {
  for (const int replicas : {2, 4}) {
    const NamedTensors expected = weights_without_sharding(replicas);
    ASSERT_EQ(expected.size(), 2U * (2 + 2 + 3) + 1);
    for (const auto& layout : sharded_layouts(replicas)) {
      for (const char* name : {"weights.safetensors", "weights.pt"}) {
        SCOPED_TRACE(layout.str() + " " + name);
        const TemporaryFolder folder;
        const auto save = [&](auto& fit) {
          fit.fit(1, {});
          save_weights(folder.file(name), fit.strategy, fit.trainer.model());
        };
        for (const bool by_workers : {false, true}) {
          if (by_workers) {
            with_fit_of_workers(layout, save);
          } else {
            with_fit(layout, save);
          }
          testing::WholeFitNet net;
          load_state_dict(*net, load_weights(folder.file(name)));
          expect_near(state_dict(*net), expected);
        }
      }
    }
  }
}

TEST(ShardedWeights, AreOnWorkerZeroOnly) {
  with_fit_of_workers(sharded_layouts(4).back(), [](auto& fit) {
    const size_t size = whole_state_dict(fit.strategy, fit.trainer.model()).size();
    EXPECT_EQ(size, fit.strategy.first_local_replica() == 0 ? 15U : 0U);
  });
}

TEST(ShardedWeights, AreRefusedAsShardsAndInUnknownFormats) {
  with_fit(sharded_layouts(2).back(), [](auto& fit) {
    const TemporaryFolder folder;
    EXPECT_THAT(message_of<InvalidArgument>(
                    [&] { save_weights(folder.file("w.pt"), state_dict(*fit.trainer.model().primary())); }),
                HasSubstr("shard of one: pass the strategy and its model"));
    EXPECT_THAT(message_of<InvalidArgument>(
                    [&] { save_weights(folder.file("w.bin"), fit.strategy, fit.trainer.model()); }),
                HasSubstr("ends in .safetensors"));
  });
}

/// An evaluator of a job with a mesh evaluates whole weights, in units or not.
TEST(ShardedWeights, OfAJobAreEvaluatedByItsEvaluator) {
  const ClusterSpec cluster({{"worker", {{0, {"127.0.0.1", 1}}, {1, {"127.0.0.1", 2}}}}});
  const auto examples = testing::fit_examples();
  for (const auto& layout : sharded_layouts(4)) {
    SCOPED_TRACE(layout.str());
    const TemporaryFolder folder;
    double expected = 0;
    with_fit(layout, [&](auto& fit) {
      fit.fit(1, {});
      save_weights(folder.file("w.safetensors"), fit.strategy, fit.trainer.model());
      expected = fit.trainer.evaluate(examples.data, examples.target).logs.at("loss");
    });
    for (const int replicas : {1, 2}) {
      MultiWorkerMirroredStrategy strategy(std::make_shared<SimpleClusterResolver>(cluster, "evaluator", 0),
                                           cpu_devices(replicas), layout.options());
      testing::with_fit_of(strategy, layout, [&](auto& fit) {
        init_weights(fit.trainer.model(), folder.file("w.safetensors"));
        EXPECT_NEAR(fit.trainer.evaluate(examples.data, examples.target).logs.at("loss"), expected, 1e-12);
      });
    }
  }
}

}  // namespace
}  // namespace lockstep
