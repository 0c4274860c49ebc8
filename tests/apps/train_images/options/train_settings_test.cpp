#include "lockstep/apps/train_images/options/train_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/train_images/options/command_line.h"
#include "lockstep/apps/train_images/options/flags.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep::apps {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::TemporaryFile;
using ::testing::UnorderedElementsAreArray;
using Words = std::vector<std::string>;

const Words kStrategies{"default", "mirrored", "one_device"};

CommandLine parsed(const Words& arguments) {
  return parse_command_line(arguments, kStrategies);
}

std::string configuration_of(const CommandLine& line) {
  return run_configuration({.options = line.options}, line.origins, "1.2.3");
}

/// The options of a run that repeats another one from its config.json.
CommandLine repeated(const CommandLine& line, Words arguments = {}) {
  const TemporaryFile file(configuration_of(line));
  arguments.insert(arguments.begin(), {"--config", file.path()});
  return parsed(arguments);
}

std::string refusal_beside_file(const std::string& values, Words arguments = {}) {
  const TemporaryFile file(R"({"format_version": 1, "values": )" + values + "}");
  arguments.insert(arguments.begin(), {"--config", file.path()});
  try {
    parsed(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

/// A few good values for each flag; "true" and "false" for flags that take no value.
Words good_values(const Flag& flag) {
  static const std::map<std::string, Words> names{
      {"data", {"auto", "generated", "some/where", "\xc3\xa9 \"quoted\""}},
      {"test-data", {"tests/*.parquet"}},
      {"image-column", {"image", "photo.bytes"}},
      {"label-column", {"label", "class"}},
      {"parquet-memory", {"1GiB", "512MiB"}},
      {"image-cache", {"host", "device"}},
      {"augment",
       {"none", "flip", "crop=4,flip", "rotate=12.5,mixup=0.30000000000000004",
        "hue=0.05,saturation=0.2,crop=1", "contrast=1,brightness=0.4"}},
      {"model", {"simple_cnn", "mobilenet_v2"}},
      {"head", {"global_average", "flattened_dense"}},
      {"refresh-batch-norm", {"auto", "always", "never"}},
      {"retryable-exit-code", {"128", "200", "255"}},
      {"precision", {"float32", "ieee", "float64", "tf32", "bfloat16", "float16"}},
      {"optimizer", {"adam", "adamw", "sgd"}},
      {"learning-rate-schedule", {"cosine", "constant", "step", "reduce_on_plateau"}},
      {"pipeline-schedule", {"gpipe", "interleaved"}},
      {"pipeline-cut", {"operations", "time"}},
      {"plan", {"check", "off", "check", "off", "auto"}},
      {"device-memory", {"80GiB", "512MiB"}},
      {"strategy", {"auto", "default", "mirrored", "one_device"}},
      {"cross-device-ops", {"auto", "nccl", "hierarchical_copy", "reduction_to_one_device"}},
      {"mesh", {"data=2", "data=2,shard=4"}},
      {"sharding", {"0", "1", "2", "3"}},
      {"communication", {"auto", "ring", "exchange", "nccl"}},
      {"exchange-algorithm", {"auto", "recursive_doubling", "halving", "direct", "ring"}},
      {"encrypt", {"on", "off"}},
      {"gradient-compression", {"none", "float16", "bfloat16"}},
      {"init-weights", {"a.safetensors", "b/c.pt"}},
      {"run-dir", {"runs/a"}},
      {"backup-dir", {"backups/a"}},
      {"mlflow-dir", {"mlruns"}},
      {"metrics-address", {"127.0.0.1", "0.0.0.0"}},
      {"save-every", {"epoch", "5 steps", "2.5 minutes"}},
      {"resume", {"auto", "never", "backups/b"}},
      {"on-not-finite", {"stop", "skip", "roll_back"}},
      {"devices", {"cpu:0", "cpu:0,cpu:1", "gpu:0"}},
      {"replica-weights", {"1,3", "measured"}},
      {"worker-hosts", {"a:1,b:2"}},
      {"image-size", {"33", "64", "2048"}},
      {"seed", {"0", "7", "18446744073709551615"}}};
  if (const auto found = names.find(long_name(flag)); found != names.end()) return found->second;
  if (flag.value.empty()) return {"true", "false"};
  if (flag.value == "N") return {"1", "2", "17", "1000"};
  if (flag.value == "X") return {"0.1", "0.30000000000000004", "1e-7", "0.9999999"};
  ADD_FAILURE() << "no values for " << flag.name;
  return {};
}

/// The options without those that belong to a single run or process.
TrainOptions lasting(TrainOptions options) {
  const TrainOptions defaults;
  options.run_dir.clear();
  options.log_every = defaults.log_every;
  options.profile = defaults.profile;
  if (!options.backup_dir.empty()) {
    options.backup_dir.clear();
    options.save_every = defaults.save_every;
    options.shard_backup = defaults.shard_backup;
    options.resume = defaults.resume;
  }
  options.mlflow_dir.clear();
  options.metrics_port = defaults.metrics_port;
  options.metrics_address = defaults.metrics_address;
  options.task_index = -1;
  options.retryable_exit_code = 0;
  return options;
}

TEST(TrainSettings, HoldEveryFlagThatIsAValue) {
  std::vector<std::string> flags;
  for (const auto& flag : train_flags(kStrategies).flags) {
    if (flag.role != FlagRole::kAction) flags.push_back(long_name(flag));
  }
  std::vector<std::string> names;
  for (const auto& setting : settings_of({}, {})) names.push_back(setting.name);
  EXPECT_THAT(names, UnorderedElementsAreArray(flags));
}

TEST(TrainSettings, RepeatARunWhateverItsFlagsWere) {
  std::mt19937 random(1);
  const auto flags = train_flags(kStrategies).flags;
  std::set<std::string> tried;
  int runs = 0;
  for (int attempt = 0; attempt < 30000 && runs < 400; ++attempt) {
    Words arguments;
    for (const auto& flag : flags) {
      if (flag.role == FlagRole::kAction || random() % 4 != 0) continue;
      const auto values = good_values(flag);
      arguments.push_back("--" + long_name(flag) + "=" + values[random() % values.size()]);
    }
    CommandLine line;
    try {
      line = parsed(arguments);
    } catch (const UsageError&) {
      continue;  // flags that cannot be combined
    }
    ++runs;
    for (const auto& [flag, origin] : line.origins) tried.insert(flag);
    const bool has_workers = !line.options.worker_hosts.empty();
    const Words process = has_workers ? Words{"--task-index", "1"} : Words{};
    const CommandLine again = repeated(line, process);
    ASSERT_EQ(lasting(again.options), lasting(line.options)) << ::testing::PrintToString(arguments);
    // Every value comes from the file.
    for (const auto& [flag, origin] : again.origins) {
      if (flag == "config" || flag == "task-index") continue;
      ASSERT_EQ(origin.kind, OriginKind::kFile) << flag;
    }
    // The file that the second run writes works as well.
    ASSERT_EQ(lasting(repeated(again, process).options), lasting(line.options));
  }
  EXPECT_EQ(runs, 400);
  for (const auto& flag : flags) {
    EXPECT_TRUE(flag.role == FlagRole::kAction || tried.contains(long_name(flag))) << flag.name;
  }
}

TEST(TrainSettings, RepeatARunInAnotherFolderWithItsRecord) {
  const auto line = parsed({"--run-dir", "runs/a", "--log-every", "3", "--profile", "2"});
  const auto elsewhere = repeated(line, {"--run-dir", "runs/b"});
  EXPECT_EQ(elsewhere.options.run_dir, "runs/b");
  EXPECT_EQ(elsewhere.options.log_every, 3);
  EXPECT_EQ(elsewhere.options.profile, 2);
  EXPECT_EQ(repeated(line).options, TrainOptions{});
}

TEST(TrainSettings, KeepTheirIntervalOfRecordsForMlflowToo) {
  const auto line = parsed({"--mlflow-dir", "mlruns", "--log-every", "3"});
  EXPECT_EQ(line.options.log_every, 3);
  EXPECT_EQ(repeated(line).options, TrainOptions{});
  EXPECT_EQ(repeated(line, {"--mlflow-dir", "others"}).options.log_every, 3);
  EXPECT_EQ(repeated(line, {"--run-dir", "runs/a"}).options.log_every, 3);
}

TEST(TrainSettings, SayWhoDecided) {
  auto line = parsed({"--epochs", "3"});
  line.origins["data"] = {OriginKind::kEnvironment, "LOCKSTEP_MNIST_DIR"};
  const auto values = nlohmann::json::parse(configuration_of(line))["values"];
  EXPECT_EQ(values["epochs"], (nlohmann::json{{"value", 3}, {"origin", "flag"}}));
  EXPECT_EQ(values["seed"], (nlohmann::json{{"value", 1}, {"origin", "default"}}));
  EXPECT_EQ(values["data"],
            (nlohmann::json{{"value", "auto"}, {"origin", "environment"}, {"name", "LOCKSTEP_MNIST_DIR"}}));
  EXPECT_EQ(values["momentum"]["value"], nullptr);
  const TemporaryFile file(configuration_of(line));
  const auto again = parsed({"--config", file.path(), "--seed", "2"});
  const auto second = nlohmann::json::parse(configuration_of(again))["values"];
  EXPECT_EQ(second["epochs"], (nlohmann::json{{"value", 3}, {"origin", "file"}, {"name", file.path()}}));
  EXPECT_EQ(second["seed"], (nlohmann::json{{"value", 2}, {"origin", "flag"}}));
}

/// Sets or unsets NO_COLOR for one test.
class ColorVariable {
 public:
  explicit ColorVariable(const char* value) {
    if (const char* previous = std::getenv("NO_COLOR")) previous_ = previous;
    value == nullptr ? unsetenv("NO_COLOR") : setenv("NO_COLOR", value, 1);
  }
  ~ColorVariable() { previous_ ? setenv("NO_COLOR", previous_->c_str(), 1) : unsetenv("NO_COLOR"); }
  ColorVariable(const ColorVariable&) = delete;
  ColorVariable& operator=(const ColorVariable&) = delete;

 private:
  std::optional<std::string> previous_;
};

TEST(TrainSettings, SayThatNoColorDecided) {
  const auto color = [](const char* value) {
    const ColorVariable variable(value);
    return nlohmann::json::parse(run_configuration({}, {}, "1"))["resolved"]["color"];
  };
  EXPECT_EQ(color("1"), (nlohmann::json{{"value", false}, {"origin", "environment"}, {"name", "NO_COLOR"}}));
  EXPECT_EQ(color(""), (nlohmann::json{{"value", true}, {"origin", "default"}}));
  EXPECT_EQ(color(nullptr), (nlohmann::json{{"value", true}, {"origin", "default"}}));
}

TEST(TrainSettings, ChangeWithAFlagTogetherWithWhatDependsOnIt) {
  const auto sgd = parsed({"--optimizer", "sgd", "--momentum", "0.5", "--model", "mobilenet_v2", "--head",
                           "flattened_dense", "--image-size", "96"});
  EXPECT_EQ(repeated(sgd, {"--optimizer", "adam"}).options.optimizer, OptimizerKind::kAdam);
  const auto cnn = repeated(sgd, {"--model", "simple_cnn"}).options;
  EXPECT_EQ(cnn.image_size, 28);
  EXPECT_EQ(cnn.head, HeadKind::kGlobalAverage);
  EXPECT_EQ(cnn.momentum, 0.5);
  const auto batches = repeated(parsed({"--per-replica-batch-size", "8"}), {"--global-batch-size", "32"});
  EXPECT_EQ(batches.options.per_replica_batch_size, 0);
  EXPECT_EQ(batches.options.global_batch_size, 32);
  EXPECT_EQ(repeated(parsed({"--replicas", "2"}), {"--devices", "cpu:0"}).options.replicas, 0);
  const auto averaged =
      repeated(parsed({"--swa-start", "4", "--swa-learning-rate", "0.05"}), {"--ema", "0.9"});
  EXPECT_EQ(averaged.options.ema, 0.9);
  EXPECT_EQ(averaged.options.swa_start, 0);
  EXPECT_EQ(averaged.options.swa_learning_rate, 0);
}

TEST(TrainSettings, AreRefusedByFileAndKey) {
  EXPECT_THAT(
      refusal_beside_file(R"({"epochs": 0})"),
      EndsWith("config.json: values.epochs: expected a whole number from 1 to 1000000000, but got '0'"));
  EXPECT_THAT(
      refusal_beside_file(R"({"optimizer": "sdg"})"),
      EndsWith(
          "config.json: values.optimizer: expected adam, adamw, sgd, but got 'sdg' (did you mean sgd?)"));
  EXPECT_THAT(
      refusal_beside_file(R"({"momentum": 0.5})"),
      EndsWith("config.json: values.momentum 0.5: expected it with --optimizer sgd only, but got adam"));
  EXPECT_THAT(refusal_beside_file(R"({"epoch": 3})"),
              EndsWith("config.json: values.epoch: expected a known key (did you mean epochs?), but got 3"));
  EXPECT_THAT(refusal_beside_file(R"({"strict": true})"),
              EndsWith("config.json: values.strict: expected --init-weights with it"));
  EXPECT_THAT(
      refusal_beside_file(R"({"worker-hosts": ["a:1"]})"),
      EndsWith("config.json: values.worker-hosts a:1: expected --worker-hosts and --task-index together"));
  EXPECT_THAT(refusal_beside_file(R"({"learning-rate": -1})"),
              EndsWith("config.json: values.learning-rate: expected a number above 0, but got '-1'"));
}

TEST(TrainSettings, AreRefusedWhereTheFileIsMissing) {
  try {
    parsed({"--config", "/nowhere/config.json"});
    ADD_FAILURE() << "nothing thrown";
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()),
              "/nowhere/config.json: expected a configuration file that can be read, but: No such file or "
              "directory");
  }
}

}  // namespace
}  // namespace lockstep::apps
