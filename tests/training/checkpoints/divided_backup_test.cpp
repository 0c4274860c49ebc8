// Checkpoints of sharded training: the memory that writing them needs, and what happens if it fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/strategies/sharding/sharded_sequential.h"
#include "lockstep/tests/strategies/nn/counted_memory.h"
#include "lockstep/tests/support/file_size_limit.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/training/trainer/sharded_fit.h"
#include "lockstep/training/callbacks/backup_and_restore.h"
#include "lockstep/training/checkpoints/checkpoint_state.h"
#include "lockstep/training/checkpoints/checkpoint_store.h"
#include "lockstep/training/formats/safetensors.h"

namespace lockstep {
namespace {

using ::testing::Each;
using testing::expect_near;
using ::testing::HasSubstr;
using testing::sharded_layouts;
using testing::ShardedLayout;
using ::testing::SizeIs;
using testing::TemporaryFolder;
using testing::with_fit;
using testing::with_fit_of_workers;

constexpr int64_t kLayersOfBackup = 8;
constexpr int64_t kWidthOfBackup = 768;
/// Bytes of the largest parameter, and of all parameters with both moments.
constexpr int64_t kBytesOfParameter = kWidthOfBackup * kWidthOfBackup * 4;
constexpr int64_t kBytesOfBackup = 3 * kLayersOfBackup * kBytesOfParameter;
/// WholeTensors exchanges small tensors up to this many bytes at once.
constexpr int64_t kBytesOfExchange = int64_t{4} << 20;

/// A layer without random numbers, since the workers of a test share one random state.
struct WideLayerImpl : torch::nn::Module {
  WideLayerImpl() {
    weight = register_parameter("weight", torch::full({kWidthOfBackup, kWidthOfBackup}, 0.001));
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::linear(x, weight); }
  torch::Tensor weight;
};
TORCH_MODULE(WideLayer);

/// Steps a model of units, each over all workers, and calls `function` with its backup.
template <typename Function>
void with_backup_of_units(const BackupOptions& options, const Function& function) {
  expect_no_worker_failed(run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    auto model = strategy.scope([](ReplicaContext& replica) {
      std::vector<ElementFactory> layers;
      for (int64_t i = 0; i < kLayersOfBackup; ++i) layers.emplace_back([] { return WideLayer(); });
      return shard_elements(layers, along(replica.axis("data")));
    });
    auto optimizer = strategy.scope(
        [&](ReplicaContext& replica) { return FusedAdam(model[replica]->parameters(), 1e-3); });
    strategy.run(
        [](ReplicaContext& replica, ShardedSequential& net, FusedAdam& adam) {
          net->forward(torch::ones({2, kWidthOfBackup}).to(replica.device())).sum().backward();
          replica.apply_gradients(adam);
        },
        model, optimizer);
    Backup backup(strategy, options);
    backup.state().add_model(model);
    backup.state().add_optimizer("optimizer", optimizer);
    function(strategy, backup);
  }));
}

TEST(DividedBackup, NeedsOneWholeTensorBesidesTheOwnState) {
  // Each is received in pieces, which are copied into place.
  const int64_t most = 2 * std::max(kBytesOfParameter, kBytesOfExchange) + kBytesOfParameter / 4;
  ASSERT_LT(most, kBytesOfBackup / 4);
  for (const bool is_asynchronous : {false, true}) {
    const TemporaryFolder folder;
    with_backup_of_units(
        {.folder = folder.path() + "/b", .asynchronous = is_asynchronous},
        [&](Strategy& strategy, Backup& backup) {
          const CountedMemory memory;
          backup.save({.step = 1});
          backup.finish();
          const bool is_chief = strategy.first_local_replica() == 0;
          EXPECT_LE(memory.peak(), most) << "worker of replica " << strategy.first_local_replica();
          if (is_chief) {
            EXPECT_GE(memory.peak(), kBytesOfParameter);
          }
          EXPECT_LE(memory.now(), kBytesOfParameter / 4);
          RecordProperty(is_chief ? "peak_of_worker_0" : "peak_of_worker_1", std::to_string(memory.peak()));
        });
    // The file holds everything.
    const auto checkpoints = list_checkpoints(folder.path() + "/b");
    ASSERT_EQ(checkpoints.size(), 1U);
    const StateValue state = load_checkpoint(checkpoints.front());
    int64_t bytes = 0;
    visit_tensors(state, [&](const std::string&, const torch::Tensor& tensor) {
      if (tensor.dim() == 2) bytes += static_cast<int64_t>(tensor.nbytes());
    });
    EXPECT_EQ(bytes, kBytesOfBackup);
  }
}

TEST(DividedBackup, OfAllWorkersNeedsEachOnesShareOfTheState) {
  const int64_t most =
      kBytesOfBackup / 2 + 2 * std::max(kBytesOfParameter, kBytesOfExchange) + kBytesOfParameter / 4;
  ASSERT_LT(most, kBytesOfBackup);
  const TemporaryFolder folder;
  with_backup_of_units({.folder = folder.path() + "/b", .sharded = true}, [&](Strategy&, Backup& backup) {
    const CountedMemory memory;
    backup.save({.step = 1});
    backup.finish();
    EXPECT_LE(memory.peak(), most);
    EXPECT_GE(memory.peak(), kBytesOfBackup / 2 - kBytesOfParameter);
  });
}

TEST(DividedBackup, TrainingGoesOnIfTheDiskIsFull) {
  for (const auto& layout : sharded_layouts(4)) {
    if (layout.stage == 0) continue;
    SCOPED_TRACE(layout.str());
    const TemporaryFolder folder;
    NamedTensors expected;
    with_fit(layout, [&](auto& fit) {
      fit.fit(2, {});
      expected = fit.weights();
    });
    std::vector<std::string> messages;  // of worker 0
    with_fit_of_workers(layout, [&](auto& fit) {
      const bool is_chief = fit.strategy.first_local_replica() == 0;
      Backup backup(fit.strategy,
                    {.folder = folder.path() + "/b", .on_message = [&](const std::string& line) {
                       if (is_chief) messages.push_back(line);
                     }});
      backup.state().add_model(fit.trainer.model());
      backup.state().add_optimizer("optimizer", fit.trainer.optimizer());
      fit.fit(1, {});
      backup.save({.step = 5});
      // All workers are past the save when any of them may write again.
      fit.strategy.extended().gather_tensors({});
      std::optional<testing::FileSizeLimit> limit;
      if (is_chief) limit.emplace(2000);
      fit.strategy.extended().gather_tensors({});
      backup.save({.step = 6});
      fit.strategy.extended().gather_tensors({});
      limit.reset();
      fit.fit(1, {}, testing::fit_examples(), 1);
      const NamedTensors weights = fit.weights();
      if (is_chief) expect_near(weights, expected);
      backup.finish();
    });
    EXPECT_THAT(messages, SizeIs(1));
    EXPECT_THAT(messages, Each(HasSubstr("could not be saved, training continues")));
    EXPECT_EQ(list_checkpoints(folder.path() + "/b").size(), 1U);
  }
}

TEST(DividedBackup, ResumesToTheBitInTheSameLayout) {
  for (const auto& layout : sharded_layouts(4)) {
    for (const bool is_sharded : {false, true}) {
      SCOPED_TRACE(layout.str());
      const TemporaryFolder folder;
      NamedTensors expected;
      NamedTensors resumed;
      with_fit_of_workers(layout, [&](auto& fit) {
        fit.fit(2, {});
        const NamedTensors weights = fit.weights();
        if (!weights.empty()) expected = weights;
      });
      const auto backup = [&] {
        return std::make_shared<BackupAndRestore>(BackupOptions{.folder = folder.path() + "/b",
                                                                .save_every = SaveInterval::steps(1),
                                                                .sharded = is_sharded,
                                                                .on_message = [](const std::string&) {}});
      };
      with_fit_of_workers(layout, [&](auto& fit) { fit.fit(1, {backup()}); });
      with_fit_of_workers(layout, [&](auto& fit) {
        fit.fit(2, {backup()});
        const NamedTensors weights = fit.weights();
        if (!weights.empty()) resumed = weights;
      });
      expect_near(resumed, expected, 0);
    }
  }
}

}  // namespace
}  // namespace lockstep
