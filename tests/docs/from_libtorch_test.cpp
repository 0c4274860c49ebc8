// The programs of docs/migration/from_libtorch.md train, resume bit-equal, and compute the same on any number
// of replicas.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/tests/support/temporary_folder.h"

#define main from_libtorch_main  // the page shows a whole program
#include <from_libtorch.h>       // written out of the page, see write_pages.py
#undef main

namespace {

constexpr double kUntrained = 1.3863;  // ln 4, the loss of a guess among four classes

MirroredStrategy replicas(int count) {
  return MirroredStrategy(cpu_devices(count), {.seed = 1});
}

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(FromLibtorch, TheProgramBeforeTrains) {
  EXPECT_LT(train(Quadrants(1000), 3), kUntrained / 2);
}

TEST(FromLibtorch, TheProgramAfterTrainsToTheSameOnAnyNumberOfReplicas) {
  const Quadrants dataset(1001);  // the last batch has 9 examples, of which the fifth replica gets one
  auto one = replicas(1);
  const double expected = train(one, dataset, 3);
  EXPECT_LT(expected, kUntrained / 2);
  for (const int count : {2, 5}) {
    auto strategy = replicas(count);
    EXPECT_NEAR(train(strategy, dataset, 3), expected, 1e-5) << count;
  }
}

TEST(FromLibtorch, ATrainingThatASignalEndsResumesAndEndsInTheSameFile) {
  const lockstep::testing::TemporaryFolder folder;
  const Quadrants dataset(100);  // 4 steps an epoch
  const std::filesystem::path straight = folder.file("straight"), interrupted = folder.file("interrupted");
  for (const auto& path : {straight, interrupted}) std::filesystem::create_directory(path);
  {
    auto strategy = replicas(2);
    const InterruptionGuard interruption;
    EXPECT_EQ(train(strategy, dataset, 2, straight.string(), interruption), 0);
  }
  int starts = 0;
  for (int exit_code = -1; exit_code != 0; ++starts) {
    auto strategy = replicas(2);
    const InterruptionGuard interruption;
    if (starts < 8) std::raise(SIGTERM);  // ends the training after one step
    exit_code = train(strategy, dataset, 2, interrupted.string(), interruption);
    ASSERT_EQ(exit_code, starts < 8 ? 128 + SIGTERM : 0);
    EXPECT_EQ(std::filesystem::exists(interrupted / "model.safetensors"), exit_code == 0);
  }
  const std::string expected = content(straight / "model.safetensors");
  EXPECT_GT(expected.size(), 8U * 8 * 32 * 4);
  EXPECT_TRUE(content(interrupted / "model.safetensors") == expected);
}

TEST(FromLibtorch, AFinishedTrainingStartedAgainTrainsNoStep) {
  const lockstep::testing::TemporaryFolder folder;
  const auto start = [&](int64_t epochs) {
    auto strategy = replicas(2);
    const InterruptionGuard interruption;
    EXPECT_EQ(train(strategy, Quadrants(100), epochs, folder.path(), interruption), 0);
    return content(folder.file("model.safetensors"));
  };
  const std::string trained = start(2);
  const auto checkpoints = list_checkpoints(folder.file("backup"));
  ASSERT_EQ(checkpoints.size(), 1U);  // only the end was saved: none is due within 10 minutes
  EXPECT_TRUE(start(2) == trained);
  EXPECT_EQ(list_checkpoints(folder.file("backup")), checkpoints);
  EXPECT_FALSE(start(3) == trained);
}

TEST(FromLibtorch, AnEvaluationCountsEveryExampleOnceOnAnyNumberOfReplicas) {
  const Quadrants dataset(1001);
  for (const int count : {1, 3}) {
    auto strategy = replicas(count);
    torch::manual_seed(1);
    auto model = strategy.scope([](ReplicaContext&) { return Net(); });
    int right = 0;
    for (size_t i = 0; i < 1001; ++i) {
      const auto example = Quadrants(dataset).get(i);
      right += static_cast<int>(model.primary()(example.data.unsqueeze(0)).argmax().item<int64_t>() ==
                                example.target.item<int64_t>());
    }
    EXPECT_DOUBLE_EQ(evaluate(strategy, model, dataset), right / 1001.0) << count;
    EXPECT_TRUE(model.primary()->is_training());
  }
}

TEST(FromLibtorch, TheWholeProgramWritesWeightsThatClassify) {
  const lockstep::testing::TemporaryFolder folder;
  std::array<std::string, 3> words{"my_program", folder.path(), "3"};
  std::array<char*, 3> arguments{words[0].data(), words[1].data(), words[2].data()};
  ASSERT_EQ(from_libtorch_main(static_cast<int>(arguments.size()), arguments.data()), 0);
  Net model;
  init_weights(*model, folder.file("model.safetensors"));
  Quadrants dataset(3000);
  int right = 0;
  for (size_t i = 2000; i < 3000; ++i) {  // not trained on
    const auto example = dataset.get(i);
    right += static_cast<int>(model(example.data.unsqueeze(0)).argmax().item<int64_t>() ==
                              example.target.item<int64_t>());
  }
  EXPECT_GT(right, 900);
}

TEST(FromLibtorch, RecordsAreReadOnceEachByAnyNumberOfThreads) {
  constexpr int64_t kRecords = 1003;
  const lockstep::testing::TemporaryFolder folder;
  const std::string path = folder.file("records");
  std::vector<float> values(kRecords * 4);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));

  auto strategy = replicas(2);
  for (const int workers : {1, 4}) {
    std::mutex mutex;
    std::vector<float> targets;
    auto batches = strategy.distribute_dataset(
        Records(path), {.global_batch_size = 10, .shuffle_seed = 1, .num_workers = workers});
    for (const auto& batch : batches) {
      strategy.run(
          [&](ReplicaContext&, const Example& shard) {
            EXPECT_TRUE(torch::equal(shard.data.select(1, 2) + 1, shard.target.squeeze(1)));
            const std::lock_guard<std::mutex> lock(mutex);
            for (int64_t i = 0; i < shard.target.size(0); ++i)
              targets.push_back(shard.target[i].item<float>());
          },
          batch);
    }
    std::sort(targets.begin(), targets.end());
    ASSERT_EQ(targets.size(), static_cast<size_t>(kRecords));
    for (size_t i = 0; i < targets.size(); ++i) ASSERT_EQ(targets[i], static_cast<float>(4 * i + 3));
  }
  EXPECT_THROW(Records(folder.file("missing")), std::runtime_error);
}

TEST(FromLibtorch, ABatchStructOfYourOwnTrainsToTheSameOnAnyNumberOfReplicas) {
  auto one = replicas(1);
  const double expected = train_sentences(one, 5);
  EXPECT_LT(expected, 0.5);  // a guess has a loss of ln 2
  auto three = replicas(3);
  EXPECT_NEAR(train_sentences(three, 5), expected, 1e-5);
}

TEST(FromLibtorch, EmptyShardsFailAndPassAsThePageSays) {
  const auto shard = torch::rand({0, 1, 8, 8});
  try {
    shard.view({shard.size(0), -1});
    ADD_FAILURE() << "expected an error";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("cannot reshape tensor of 0 elements into shape [0, -1]"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(shard.flatten(1).size(1), 64);
  EXPECT_EQ(shard.view({shard.size(0), 64}).size(1), 64);
  EXPECT_ANY_THROW(torch::nn::BatchNorm1d(3)(torch::rand({1, 3})));
  torch::nn::BatchNorm2d counts_it(1);
  EXPECT_EQ(counts_it(shard).size(0), 0);
  EXPECT_EQ(counts_it->num_batches_tracked.item<int64_t>(), 1);
  BatchNorm norm(1);
  EXPECT_EQ(norm(shard).size(0), 0);
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 0);
  EXPECT_ANY_THROW(shard.max());
  EXPECT_ANY_THROW(shard.flatten(1).max(0));
  EXPECT_ANY_THROW(shard.argmax());
  EXPECT_TRUE(shard.mean().isnan().item<bool>());

  auto strategy = MirroredStrategy(cpu_devices(5));
  auto batches = strategy.distribute_dataset(TensorDataset(torch::zeros({8, 1}), torch::zeros({8, 1})),
                                             {.global_batch_size = 8, .drop_remainder = true});
  const auto batch = batches.begin();
  EXPECT_EQ(batch->batch_sizes()->local, (std::vector<int64_t>{2, 2, 2, 2, 0}));
}

}  // namespace
