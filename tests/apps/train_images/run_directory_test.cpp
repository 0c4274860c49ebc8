// Records that the built program writes of a run, and runs that start from the files of another run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/tests/apps/train_images/trainings.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

nlohmann::json file_json(const std::string& path) {
  return nlohmann::json::parse(file_text(path));
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Returns the pictures in a report, as it has them.
std::vector<std::string> pictures_in(const std::string& report) {
  const std::string prefix = "data:image/png;base64,";
  std::vector<std::string> pictures;
  for (size_t at = report.find(prefix); at != std::string::npos; at = report.find(prefix, at + 1))
    pictures.push_back(report.substr(at, report.find('"', at) - at));
  return pictures;
}

/// Trains and records the run in `folder`/run.
ProcessResult recorded(const TemporaryFolder& folder, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"--run-dir", folder.path() + "/run"});
  return train_images(short_training(more));
}

TEST(TrainImagesRun, RecordsConfigurationMetricsEventsAndAReport) {
  const TemporaryFolder folder;
  const auto result = recorded(folder, {"--epochs", "2", "--seed", "5", "--profile", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const std::string run = folder.path() + "/run";
  EXPECT_THAT(names_in(run), ElementsAre("checkpoints", "config.json", "metrics.csv", "metrics.jsonl",
                                         "profile.json", "report.html", "tb"));
  const auto config = file_json(run + "/config.json");
  EXPECT_EQ(config["values"]["seed"]["value"], 5);
  EXPECT_EQ(config["values"]["seed"]["origin"], "flag");
  EXPECT_EQ(config["values"]["optimizer"]["origin"], "default");
  EXPECT_EQ(config["resolved"]["parameters"]["value"], 693962);
  const auto csv = file_text(run + "/metrics.csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3) << csv;
  const auto epochs = epochs_of(result);
  ASSERT_EQ(epochs.size(), 2U);
  std::istringstream lines(file_text(run + "/metrics.jsonl"));
  nlohmann::json last;
  size_t epoch = 0;
  for (std::string line; std::getline(lines, line);) {
    last = nlohmann::json::parse(line);
    if (last["kind"] != "epoch") continue;
    EXPECT_NEAR(last["loss"].get<double>(), epochs[epoch].loss, 5e-5);
    EXPECT_NEAR(last["validation_accuracy"].get<double>(), epochs[epoch].test_accuracy, 5e-5);
    ++epoch;
  }
  EXPECT_EQ(epoch, 2U);
  EXPECT_EQ(last["status"], "completed");
  const auto report = file_text(run + "/report.html");
  for (const std::string part : {"<svg", "Misclassified images", "data:image/png;base64,"})
    EXPECT_THAT(report, HasSubstr(part));
}

TEST(TrainImagesRun, IsTheSameWithImagesInTheDevicesCache) {
  const TemporaryFolder folder;
  for (uint64_t i = 0; i < 8; ++i) {
    // The test has the classes the other way round, so that images are misclassified.
    for (const uint64_t part : {0, 1}) {
      folder.write((part == 0 ? "data/train/" : "data/test/") + std::to_string((i + part) % 2) + "/" +
                       std::to_string(i) + ".png",
                   encode_png(make_image(28, 28, 1, i)));
    }
  }
  std::map<std::string, std::string> metrics;
  std::map<std::string, std::vector<std::string>> pictures;
  for (const std::string cache : {"host", "device"}) {
    const std::string run = folder.path() + "/" + cache;
    const auto result = train_images({"--data", folder.path() + "/data", "--image-cache", cache, "--epochs",
                                      "2", "--threads", "1", "--global-batch-size", "4", "--run-dir", run});
    ASSERT_EQ(result.exit_code, 0) << result.error;
    EXPECT_EQ(file_json(run + "/config.json")["values"]["image-cache"]["value"], cache);
    pictures[cache] = pictures_in(file_text(run + "/report.html"));
    const auto epochs = epochs_of(result);
    EXPECT_EQ(epochs.size(), 2U) << result.out;
    for (const auto& epoch : epochs)
      metrics[cache] += std::to_string(epoch.loss) + " " + std::to_string(epoch.test_accuracy) + "\n";
  }
  EXPECT_EQ(metrics["device"], metrics["host"]);
  EXPECT_FALSE(pictures["host"].empty());
  EXPECT_EQ(pictures["device"], pictures["host"]);
}

TEST(TrainImagesRun, IsRepeatedByItsConfiguration) {
  const TemporaryFolder first, second, third;
  const auto original = recorded(first, {"--optimizer", "sgd", "--momentum", "0.5", "--seed", "9",
                                         "--replicas", "2", "--learning-rate-schedule", "constant"});
  ASSERT_EQ(original.exit_code, 0) << original.error;
  const std::string config = first.path() + "/run/config.json";
  const auto again = train_images({"--config", config, "--run-dir", second.path() + "/run"});
  ASSERT_EQ(again.exit_code, 0) << again.error;
  const auto repeated = epochs_of(again), once = epochs_of(original);
  ASSERT_EQ(repeated.size(), once.size());
  EXPECT_EQ(repeated[0].loss, once[0].loss);
  EXPECT_EQ(repeated[0].test_accuracy, once[0].test_accuracy);
  const auto values = file_json(second.path() + "/run/config.json")["values"];
  EXPECT_EQ(values["momentum"]["value"], 0.5);
  EXPECT_EQ(values["momentum"]["origin"], "file");
  const auto other = train_images({"--config", config, "--seed", "10"});
  ASSERT_EQ(other.exit_code, 0) << other.error;
  EXPECT_NE(epochs_of(other)[0].loss, once[0].loss);
}

TEST(TrainImagesRun, NeverOverwritesAnother) {
  const TemporaryFolder folder;
  ASSERT_EQ(recorded(folder).exit_code, 0);
  const std::string run = folder.path() + "/run";
  const auto config = file_text(run + "/config.json"), csv = file_text(run + "/metrics.csv");
  const auto again = recorded(folder, {"--seed", "77"});
  EXPECT_EQ(again.exit_code, 4);
  EXPECT_THAT(again.error, AllOf(StartsWith("train_images: error: "), HasSubstr(run)));
  EXPECT_EQ(file_text(run + "/config.json"), config);
  EXPECT_EQ(file_text(run + "/metrics.csv"), csv);
}

TEST(TrainImagesRun, EndsBeforeItTrainsWhereItsFolderCannotBeMade) {
  const auto result = train_images(short_training({"--run-dir", "/proc/nothing/here"}));
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.error, HasSubstr("/proc/nothing/here"));
  EXPECT_EQ(result.out, "");
}

TEST(TrainImagesRun, SaysInItsRecordThatItFailed) {
  const TemporaryFolder folder;
  const auto result = recorded(folder, {"--optimizer", "sgd", "--learning-rate", "1e30"});
  EXPECT_EQ(result.exit_code, 6);
  const auto text = file_text(folder.path() + "/run/metrics.jsonl");
  EXPECT_THAT(text, HasSubstr("\"status\": \"failed\""));
  EXPECT_THAT(file_text(folder.path() + "/run/report.html"), HasSubstr("expected a finite loss"));
}

TEST(TrainImagesRun, BeginsWithTheWeightsOfAnother) {
  const TemporaryFolder folder;
  const auto first = recorded(folder, {"--epochs", "3"});
  ASSERT_EQ(first.exit_code, 0) << first.error;
  const std::string weights = folder.path() + "/run/checkpoints/last.safetensors";
  EXPECT_THAT(names_in(folder.path() + "/run/checkpoints"),
              ElementsAre("best.pt", "best.safetensors", "last.pt", "last.safetensors"));
  // The learning rate is too low to change the weights.
  const std::vector<std::string> still{"--learning-rate", "1e-12", "--optimizer", "sgd", "--init-weights"};
  for (const std::string ending : {".safetensors", ".pt"}) {
    auto more = still;
    more.insert(more.end(), {folder.path() + "/run/checkpoints/last" + ending, "--strict"});
    const auto second = train_images(short_training(more));
    ASSERT_EQ(second.exit_code, 0) << second.error;
    EXPECT_EQ(epochs_of(second).at(0).test_accuracy, epochs_of(first).at(2).test_accuracy);
    EXPECT_THAT(second.out, HasSubstr("weights          6 tensors of "));
  }
}

TEST(TrainImagesRun, ListsTheWeightsThatDoNotFitAndRefusesThemWhereItIsToBeStrict) {
  const TemporaryFolder folder;
  ASSERT_EQ(recorded(folder).exit_code, 0);
  const std::string weights = folder.path() + "/run/checkpoints/last.safetensors";
  // With larger images, the dense layer takes more features.
  const auto loose = train_images(short_training({"--init-weights", weights, "--image-size", "32"}));
  EXPECT_EQ(loose.exit_code, 0) << loose.error;
  EXPECT_THAT(loose.out, AllOf(HasSubstr("5 tensors of"), HasSubstr("dense.weight"), HasSubstr("128, 5408"),
                               HasSubstr("128, 7200")));
  const auto strict =
      train_images(short_training({"--init-weights", weights, "--image-size", "32", "--strict"}));
  EXPECT_EQ(strict.exit_code, 4);
  EXPECT_THAT(strict.error, AllOf(HasSubstr("dense.weight"), HasSubstr("5408"), HasSubstr("7200")));
  const auto missing = train_images(short_training({"--init-weights", folder.path() + "/none.safetensors"}));
  EXPECT_EQ(missing.exit_code, 4);
  EXPECT_THAT(missing.error, HasSubstr("none.safetensors"));
}

TEST(TrainImagesRun, StopsEarlyWhereTheTestLossGetsNoBetter) {
  const auto result =
      train_images(short_training({"--epochs", "50", "--early-stopping", "1", "--learning-rate-schedule",
                                   "constant", "--learning-rate", "0.03"}));
  ASSERT_EQ(result.exit_code, 0) << result.error;
  EXPECT_LT(epochs_of(result).size(), 50U);
  EXPECT_THAT(result.out, HasSubstr("stopped early: validation_loss is not better than in epoch "));
}

TEST(TrainImagesRun, PrintsNothingWhereItIsToBeQuiet) {
  const auto result = train_images(short_training({"--quiet"}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out + result.error, "");
}

TEST(TrainImagesRun, ComputesInFloat64) {
  const auto losses_of = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--precision", "float64", "--optimizer", "sgd"});
    const auto result = train_images(short_training(more));
    EXPECT_EQ(result.exit_code, 0) << result.error;
    return epochs_of(result).at(0).loss;
  };
  EXPECT_EQ(losses_of({"--replicas", "2"}), losses_of({}));
}

TEST(TrainImagesRun, MicroBatchesMakeTheSameSteps) {
  const auto loss_of = [](const std::string& pieces) {
    const auto result = train_images(short_training({"--optimizer", "sgd", "--accumulate-steps", pieces}));
    EXPECT_EQ(result.exit_code, 0) << result.error;
    return epochs_of(result).at(0).loss;
  };
  EXPECT_NEAR(loss_of("4"), loss_of("1"), 1.1e-4);
}

}  // namespace
}  // namespace lockstep::testing
