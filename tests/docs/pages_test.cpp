// The programs shown in docs/ compute what they claim, and the same as a bare LibTorch loop.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/tests/support/temporary_folder.h"

#include <pages.h>  // written out of docs/, see write_pages.py

#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/parameter_server_job.h"

namespace {

/// 300 examples, so that the last batch of 64 is smaller, in 10 classes.
struct Examples {
  torch::Tensor data = torch::rand({300, 8});
  torch::Tensor target = torch::randint(10, {300}, torch::kLong);
};

constexpr uint64_t kSeed = 7;  // for the initial values

struct Losses {
  double batch = 0;  ///< the mean over the last batch before its step
  double epoch = 0;  ///< the mean over all examples of the last epoch, each before its step
};

/// Trains 5 epochs by hand.
Losses train_by_hand(const Examples& examples, double momentum, std::optional<uint64_t> shuffle_seed) {
  torch::manual_seed(kSeed);
  torch::nn::Linear model(8, 10);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(momentum));
  Losses losses;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<int64_t> order;
    if (shuffle_seed) {
      for (const size_t index : lockstep::epoch_permutation(300, *shuffle_seed, epoch))
        order.push_back(static_cast<int64_t>(index));
    }
    const auto rows = shuffle_seed ? torch::tensor(order) : torch::arange(300);
    losses.epoch = 0;
    for (const auto& batch : rows.split(64)) {
      optimizer.zero_grad();
      const auto loss = torch::nn::functional::cross_entropy(model(examples.data.index_select(0, batch)),
                                                             examples.target.index_select(0, batch));
      loss.backward();
      optimizer.step();
      losses.batch = loss.item<double>();
      losses.epoch += losses.batch * static_cast<double>(batch.size(0)) / 300;
    }
  }
  return losses;
}

/// Makes a folder the current one while it lives.
class InFolder {
 public:
  explicit InFolder(const std::filesystem::path& folder) { std::filesystem::current_path(folder); }
  ~InFolder() { std::filesystem::current_path(before_); }
  InFolder(const InFolder&) = delete;
  InFolder& operator=(const InFolder&) = delete;

 private:
  const std::filesystem::path before_ = std::filesystem::current_path();
};

using Train = double (*)(const torch::Tensor& data, const torch::Tensor& target);

void expect_to_train_as_by_hand(Train train, double momentum, std::optional<uint64_t> shuffle_seed) {
  const Examples examples;
  const double expected = train_by_hand(examples, momentum, shuffle_seed).batch;
  torch::manual_seed(kSeed);
  EXPECT_NEAR(train(examples.data, examples.target), expected, 1e-5);
}

TEST(Pages, FromTfDistributeTrainsAsABareLoop) {
  expect_to_train_as_by_hand(from_tf_distribute::train, 0, std::nullopt);
}

TEST(Pages, FromPytorchDdpTrainsAsABareLoop) {
  expect_to_train_as_by_hand(from_pytorch_ddp::train, 0.9, 1);
}

TEST(Pages, FromHorovodTrainsAsABareLoop) {
  expect_to_train_as_by_hand(from_horovod::train, 0, 0);
}

TEST(Pages, FromKerasFitsOnAnyNumberOfReplicasAndServesWhatItLearnt) {
  const auto examples_of = [](int64_t count) {
    const auto data = torch::rand({count, 8});
    return lockstep::TensorDataset(data, (data.sum(1) * 10 / 8).floor().to(torch::kLong));
  };
  torch::manual_seed(kSeed);
  const auto train = examples_of(1001), test = examples_of(100);
  const lockstep::testing::TemporaryFolder folder;
  std::vector<double> losses;
  for (const int replicas : {1, 3}) {
    const auto path = std::filesystem::path(folder.file(std::to_string(replicas)));
    std::filesystem::create_directory(path);
    const InFolder inside(path);  // the program's backup is in the current folder
    torch::manual_seed(kSeed);
    const auto strategy =
        lockstep::make_strategy("mirrored", {.devices = lockstep::cpu_devices(replicas)}).strategy;
    const auto history = from_keras::train(*strategy, train, test);
    ASSERT_EQ(history.epochs.size(), 5U);
    EXPECT_LT(*history.epochs.back().find("loss"), *history.epochs.front().find("loss"));
    losses.push_back(*history.epochs.back().find("validation_loss"));
    if (replicas > 1) continue;
    // Its newest checkpoint classifies the test's rows as the evaluation did.
    const auto checkpoints = path / "backup";
    std::string newest;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoints)) {
      if (entry.is_directory()) newest = std::max(newest, entry.path().string());
    }
    from_keras::Classifier classifier(newest);
    const auto right = classifier.classify(test.data()).eq(test.target()).sum().item<double>() / 100;
    EXPECT_NEAR(right, *history.epochs.back().find("validation_accuracy"), 1e-9);
    EXPECT_GT(right, 0.2);  // a guess is right for one in ten
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-3);
}

TEST(Pages, FromKerasCallbacksKeepTheBestWeightsAndWriteLogs) {
  const lockstep::testing::TemporaryFolder folder;
  const InFolder inside(folder.path());
  const Examples examples;
  const auto strategy = lockstep::make_strategy("default").strategy;
  lockstep::Trainer trainer(
      *strategy, [](lockstep::ReplicaContext&) { return torch::nn::Linear(8, 10); },
      [](auto parameters) { return lockstep::FusedSgd(parameters, 0.1); }, lockstep::cross_entropy,
      {{"accuracy", lockstep::CategoricalAccuracy()}});
  const lockstep::InterruptionGuard interruption;
  auto callbacks = from_keras::make_callbacks(interruption);
  callbacks.push_back(from_keras::reduce_on_plateau());
  const auto history =
      trainer.fit(examples.data, examples.target,
                  {.epochs = 2, .validation = {examples.data, examples.target}, .callbacks = callbacks});
  EXPECT_EQ(history.epochs.size(), 2U);
  EXPECT_TRUE(std::filesystem::exists("checkpoints/best.safetensors"));
  EXPECT_FALSE(std::filesystem::exists("checkpoints/last.safetensors"));
  EXPECT_FALSE(std::filesystem::is_empty("logs/validation"));
  EXPECT_TRUE(lockstep::list_checkpoints("backup").empty());  // removed after success
}

TEST(Pages, FromKerasModelHasItsInitialValues) {
  const auto layer = from_keras::dense(300, 100);
  const double limit = std::sqrt(6.0 / 400);  // Glorot and Bengio, 2010
  EXPECT_LE(layer->weight.abs().max().item<double>(), limit);
  EXPECT_NEAR(layer->weight.std().item<double>(), limit / std::sqrt(3), limit / 20);
  EXPECT_EQ(layer->bias.abs().max().item<double>(), 0);
}

TEST(Pages, TrainerFitsAsABareLoop) {
  const Examples examples;
  const auto strategy = lockstep::make_strategy("default").strategy;
  const auto expected = train_by_hand(examples, 0, 1);
  torch::manual_seed(kSeed);
  const auto history = trainer::train(*strategy, examples.data, examples.target);
  ASSERT_EQ(history.epochs.size(), 5U);
  EXPECT_NEAR(*history.epochs.back().find("loss"), expected.epoch, 1e-5);
}

TEST(Pages, TrainerDoesNotFitUnderParameterServers) {
  const Examples examples;
  lockstep::ParameterServerJob job({});
  const auto message = lockstep::message_of<lockstep::InvalidArgument>(
      [&] { trainer::train(job.chief(), examples.data, examples.target); });
  EXPECT_NE(message.find("define_step()"), std::string::npos) << message;
}

TEST(Pages, TrainersCallbackStopsAFitAndTheMetricCounts) {
  torch::manual_seed(kSeed);
  const auto x = torch::rand({100, 8});
  const auto y = x.sum(1, /*keepdim=*/true);
  const auto strategy = lockstep::make_strategy("mirrored", {.devices = {"cpu:0", "cpu:1"}}).strategy;
  const auto history = trainer::train_until(*strategy, x, y, 0.05);
  EXPECT_EQ(history.stop_reason.find("the loss is below 0.05"), 0U);
  EXPECT_LT(history.epochs.size(), 100U);
  const double loss = *history.epochs.back().find("loss");
  EXPECT_LT(loss, 0.05);
  // By Jensen's inequality the mean distance is at most the root of the mean square.
  const double distance = *history.epochs.back().find("mean_absolute_error");
  EXPECT_LE(distance, std::sqrt(loss) + 1e-9);
  EXPECT_GT(distance, 0);
}

TEST(Pages, TrainersOwnStepTrains) {
  const Examples examples;
  const auto strategy = lockstep::make_strategy("mirrored", {.devices = {"cpu:0", "cpu:1"}}).strategy;
  const auto history = trainer::train_by_own_step(*strategy, examples.data, examples.target);
  ASSERT_EQ(history.epochs.size(), 5U);
  // Two cross entropies over 10 classes begin near 2 ln 10.
  EXPECT_NEAR(*history.epochs.front().find("loss"), 2 * std::log(10), 0.5);
  EXPECT_LT(*history.epochs.back().find("loss"), *history.epochs.front().find("loss"));
}

TEST(Pages, ParameterServersProgramTrainsWithoutServersToTheSameOnAnyNumberOfReplicas) {
  constexpr int64_t kSteps = 100;
  std::vector<double> losses;
  for (const int replicas : {1, 2}) {
    torch::manual_seed(kSeed);
    const auto strategy =
        lockstep::make_strategy("mirrored", {.devices = lockstep::cpu_devices(replicas)}).strategy;
    losses.push_back(parameter_servers::train(*strategy, kSteps));
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-4);
  // Better than the best constant prediction, whose loss is the entropy of the share of clicks.
  const lockstep::GeneratedClicks clicks({.count = 20'000});
  double share = 0;
  for (size_t i = 0; i < 20'000; ++i) share += clicks.probability(i) / 20'000;
  EXPECT_LT(losses[0], -share * std::log(share) - (1 - share) * std::log(1 - share) - 0.02);
}

}  // namespace
