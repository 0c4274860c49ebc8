#include "lockstep/apps/compare_strategies/options/compare_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <sstream>
#include <variant>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::vector<std::string> kNames{"default",    "mirrored",         "multi_worker",
                                      "one_device", "parameter_server", "tpu"};

CompareOptions compare_options_of(std::vector<std::string> arguments,
                                  const std::string& strategies = "default") {
  arguments.insert(arguments.begin(), {"--strategies", strategies});
  return parse_compare_command_line(arguments, kNames).options;
}

std::string refusal_to_compare(const std::vector<std::string>& arguments,
                               const std::string& strategies = "default") {
  try {
    compare_options_of(arguments, strategies);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(CompareOptions, ReadsEachStrategyWithItsReplicas) {
  const auto strategies = compare_options_of({}, "default,mirrored:2,multi_worker:3").strategies;
  ASSERT_EQ(strategies.size(), 3U);
  EXPECT_EQ(strategies[0], (ComparedStrategy{"default", 0, "default"}));
  EXPECT_EQ(strategies[1], (ComparedStrategy{"mirrored", 2, "mirrored:2"}));
  EXPECT_EQ(strategies[2], (ComparedStrategy{"multi_worker", 3, "multi_worker:3"}));
  EXPECT_EQ(num_processes(strategies[0]), 1);
  EXPECT_EQ(num_processes(strategies[1]), 1);
  EXPECT_EQ(num_processes(strategies[2]), 3);
  EXPECT_EQ(num_processes({"multi_worker", 0, ""}), 1);
}

TEST(CompareOptions, ReadsWorkersServersAndStalenessOfParameterServers) {
  const auto strategies =
      compare_options_of({"--model", "wide_deep", "--ps", "2"},
                         "parameter_server,parameter_server:3,parameter_server:3:0,mirrored:2")
          .strategies;
  ASSERT_EQ(strategies.size(), 4U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(num_workers(strategies[i]), i == 0 ? 1 : 3);
    EXPECT_EQ(num_processes(strategies[i]), (i == 0 ? 1 : 3) + 1 + 2);  // the chief, and two servers
  }
  EXPECT_EQ(strategies[1].max_staleness, std::nullopt);
  EXPECT_EQ(strategies[2].max_staleness, 0U);
  EXPECT_EQ(strategies[2].label, "parameter_server:3:0");
  EXPECT_EQ(num_processes(strategies[3]), 1);
  EXPECT_EQ(refusal_to_compare({"--model", "dlrm"}, "mirrored:2:0"),
            "--strategies mirrored:2:0: expected NAME or NAME:N, but got 'mirrored:2:0'");
  EXPECT_EQ(refusal_to_compare({"--model", "dlrm"}, "parameter_server:2:0:1"),
            "--strategies parameter_server:2:0:1: expected NAME, NAME:N or NAME:N:S, but got "
            "'parameter_server:2:0:1'");
  EXPECT_EQ(refusal_to_compare({"--model", "dlrm"}, "parameter_server:2:x"),
            "--strategies parameter_server:2:x: expected a whole number from 0 to 1000000000, but got 'x'");
  EXPECT_EQ(refusal_to_compare({"--model", "mobilenet_v2"}, "parameter_server:2"),
            "--strategies parameter_server:2: expected it with --model wide_deep or dlrm only, but got "
            "mobilenet_v2");
  EXPECT_EQ(refusal_to_compare({"--model", "dlrm", "--ps", "2"}, "mirrored:2"),
            "--ps 2: expected parameter_server among --strategies");
}

TEST(CompareOptions, ReadsMeshesAndStagesOfSharding) {
  const auto strategies =
      compare_options_of({"--model", "small"},
                         "mirrored:data=2+tensor=2,mirrored:shard=2+inner=2:model/3,multi_worker:context=3,"
                         "mirrored:4/2,mirrored:4")
          .strategies;
  ASSERT_EQ(strategies.size(), 5U);
  EXPECT_EQ(strategies[0].mesh, "data=2,tensor=2");
  EXPECT_EQ(strategies[0].replicas, 4);
  EXPECT_EQ(strategies[0].sharding, 0);
  EXPECT_EQ(strategies[0].label, "mirrored:data=2+tensor=2");
  EXPECT_EQ(strategies[1].mesh, "shard=2,inner=2:model");
  EXPECT_EQ(strategies[1].replicas, 4);
  EXPECT_EQ(strategies[1].sharding, 3);
  EXPECT_EQ(num_processes(strategies[2]), 3);
  EXPECT_EQ(strategies[3].sharding, 2);
  EXPECT_EQ(strategies[3].mesh, "");
  EXPECT_EQ(strategies[4].label, "mirrored:4") << "another strategy than with a stage";
  const auto refusal = [](const std::string& text) { return refusal_to_compare({"--model", "small"}, text); };
  EXPECT_EQ(
      refusal("mirrored:data=2+tensor"),
      "--strategies mirrored:data=2+tensor: expected axes with their sizes, such as data=2+tensor=2, but "
      "got 'data=2+tensor'");
  EXPECT_THAT(refusal("mirrored:data=x"), HasSubstr("expected a whole number from 1 to 1024, but got 'x'"));
  EXPECT_THAT(refusal("mirrored:data=64+tensor=64"), HasSubstr("expected a mesh of at most 1024 ranks"));
  EXPECT_THAT(refusal("mirrored:2/4"), HasSubstr("expected a whole number from 1 to 3, but got '4'"));
  EXPECT_EQ(refusal("default:tensor=2"),
            "--strategies default:tensor=2: expected a mesh or a stage of sharding with mirrored or "
            "multi_worker, but got default");
}

TEST(CompareOptions, StartsAProcessForEachTpu) {
  const auto strategies = compare_options_of({}, "tpu:3,tpu:testdevice:0+testdevice:1").strategies;
  EXPECT_EQ(num_processes(strategies[0]), 3);
  EXPECT_EQ(num_processes(strategies[1]), 1) << "its devices are named";
}

TEST(CompareOptions, ReadsDevicesAndWeightsOfReplicas) {
  const auto strategies =
      compare_options_of(
          {},
          "mirrored:cpu:0+gpu:1,mirrored:cpu:0+gpu:1@1+2.5,mirrored:cpu:0+gpu:1@measured,mirrored:2@1+3,"
          "mirrored:2,mirrored:2/1@1+3")
          .strategies;
  ASSERT_EQ(strategies.size(), 6U);
  EXPECT_THAT(strategies[0].devices, ElementsAre("cpu:0", "gpu:1"));
  EXPECT_EQ(strategies[0].replicas, 2);
  EXPECT_EQ(strategies[0].replica_weights, "");
  EXPECT_EQ(strategies[1].label, "mirrored:cpu:0+gpu:1@1+2.5") << "another strategy than without weights";
  EXPECT_EQ(strategies[1].replica_weights, "1,2.5");
  EXPECT_EQ(strategies[2].replica_weights, "measured");
  EXPECT_TRUE(strategies[3].devices.empty());
  EXPECT_EQ(strategies[3].replica_weights, "1,3");
  EXPECT_EQ(strategies[4].label, "mirrored:2");
  EXPECT_EQ(strategies[5].sharding, 1);
  EXPECT_EQ(refusal_to_compare({}, "mirrored:2@"),
            "--strategies mirrored:2@: expected measured, or numbers joined by +, after @, but got ''");
  EXPECT_EQ(refusal_to_compare({}, "mirrored:cpu:0+"),
            "--strategies mirrored:cpu:0+: expected devices joined by +, but got 'cpu:0+'");
  EXPECT_EQ(refusal_to_compare({}, "default:cpu:0"),
            "--strategies default:cpu:0: expected devices or weights of replicas with mirrored or tpu, but "
            "got default");
  EXPECT_EQ(refusal_to_compare({}, "multi_worker:2@1+3"),
            "--strategies multi_worker:2@1+3: expected devices or weights of replicas with mirrored or tpu, "
            "but got "
            "multi_worker");
}

TEST(CompareOptions, TellsStrategiesApartThatAreNamedTwice) {
  const auto strategies = compare_options_of({}, "default,default,mirrored:2,mirrored:3,default").strategies;
  std::vector<std::string> labels;
  for (const auto& strategy : strategies) labels.push_back(strategy.label);
  EXPECT_THAT(labels, ElementsAre("default", "default#2", "mirrored:2", "mirrored:3", "default#3"));
}

TEST(CompareOptions, RefusesUnknownStrategiesAndSuggestsTheOneThatWasMeant) {
  EXPECT_EQ(
      refusal_to_compare({}, "default,mirored:2"),
      "--strategies: expected default, mirrored, multi_worker, one_device, parameter_server, tpu, each alone "
      "or with :N, but got "
      "'mirored:2' (did you mean mirrored?)");
  EXPECT_THAT(refusal_to_compare({}, ""), HasSubstr("but got ''"));
  EXPECT_THAT(refusal_to_compare({}, "default,"), HasSubstr("but got ''"));
  EXPECT_THAT(refusal_to_compare({}, "auto"), HasSubstr("but got 'auto'"));
  try {
    parse_compare_command_line({}, kNames);
    ADD_FAILURE() << "nothing thrown";
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()),
              "--strategies: expected at least one, such as default,mirrored:2, but got none");
  }
}

TEST(CompareOptions, RefusesWhatIsNoNumberOfReplicas) {
  for (const std::string number : {"0", "-1", "x", "", "1025"}) {
    EXPECT_EQ(refusal_to_compare({}, "mirrored:" + number),
              "--strategies mirrored:" + number + ": expected a whole number from 1 to 1024, but got '" +
                  number + "'");
  }
}

TEST(CompareOptions, WarmsUpForFewerStepsThanItTrains) {
  EXPECT_EQ(compare_options_of({}).steps, 50);
  EXPECT_EQ(compare_options_of({}).warmup_steps, 5);
  EXPECT_EQ(compare_options_of({"--steps", "3"}).warmup_steps, 2);
  EXPECT_EQ(compare_options_of({"--steps", "1"}).warmup_steps, 0);
  EXPECT_EQ(compare_options_of({"--steps", "3", "--warmup-steps", "0"}).warmup_steps, 0);
  EXPECT_EQ(refusal_to_compare({"--steps", "3", "--warmup-steps", "3"}),
            "--warmup-steps 3: expected fewer than the 3 of --steps");
}

TEST(CompareOptions, RefusesNothingToDo) {
  for (const std::string flag : {"--steps", "--rounds", "--timeout", "--global-batch-size"}) {
    EXPECT_THAT(refusal_to_compare({flag, "0"}), HasSubstr(flag + ": expected a whole number from 1 to"))
        << flag;
  }
  EXPECT_EQ(refusal_to_compare({"--out", ""}), "--out: expected a folder, but got ''");
}

TEST(CompareOptions, ReadsTheWorkAsTrainImagesDoes) {
  const auto options = compare_options_of({"--model", "mobilenet_v2", "--data", "generated", "--optimizer",
                                           "sgd", "--momentum", "0.5", "--precision", "float64",
                                           "--global-batch-size", "32", "--seed", "7", "--threads", "1"});
  const auto& work = std::get<TrainOptions>(options.work);
  EXPECT_EQ(work.model, ModelKind::kMobileNetV2);
  EXPECT_EQ(work.image_size, 64);
  EXPECT_EQ(work.data, "generated");
  EXPECT_EQ(work.optimizer, OptimizerKind::kSgd);
  EXPECT_EQ(work.momentum, 0.5);
  EXPECT_EQ(work.precision, PrecisionKind::kFloat64);
  EXPECT_EQ(work.global_batch_size, 32);
  EXPECT_EQ(work.seed, 7U);
  EXPECT_EQ(work.threads, 1);
  EXPECT_THAT(refusal_to_compare({"--precision", "float46"}), HasSubstr("did you mean float64?"));
  // A comparison neither trains to the end nor runs one strategy, so it has no such flags.
  for (const std::string flag : {"--epochs", "--strategy", "--replicas", "--run-dir"})
    EXPECT_THAT(refusal_to_compare({flag, "1"}), HasSubstr(flag + ": expected a flag of this program"))
        << flag;
}

TEST(CompareOptions, ReadsTheWorkOfClicksAsTrainCtrDoes) {
  const auto options = compare_options_of(
      {"--model", "dlrm",         "--data",  "clicks.txt",          "--skip-bad", "--train-rows",
       "1000",    "--table-rows", "64",      "--embedding-dim",     "8",          "--optimizer",
       "adam",    "--precision",  "float64", "--global-batch-size", "32",         "--seed",
       "7",       "--threads",    "1"});
  const auto& work = std::get<CtrOptions>(options.work);
  EXPECT_EQ(work.model, CtrModelKind::kDlrm);
  EXPECT_EQ(work.data, std::vector<std::string>{"clicks.txt"});
  EXPECT_TRUE(work.skip_bad);
  EXPECT_EQ(work.train_rows, 1000);
  EXPECT_EQ(work.table_rows, 64);
  EXPECT_EQ(work.embedding_dim, 8);
  EXPECT_EQ(work.optimizer, CtrOptimizerKind::kAdam);
  EXPECT_EQ(work.learning_rate, 0.001);
  EXPECT_EQ(work.precision, CtrPrecision::kFloat64);
  EXPECT_EQ(work.global_batch_size, 32);
  EXPECT_EQ(work.seed, 7U);
  EXPECT_EQ(work.threads, 1);
  EXPECT_EQ(std::get<CtrOptions>(compare_options_of({"--model", "wide_deep"}).work).global_batch_size,
            CtrWork().global_batch_size);
}

TEST(CompareOptions, RefusesFlagsOfTheOtherKindOfModels) {
  EXPECT_EQ(refusal_to_compare({"--model", "dlrm", "--image-size", "32"}),
            "--image-size 32: expected it with --model simple_cnn or mobilenet_v2 only, but got dlrm");
  EXPECT_EQ(refusal_to_compare({"--table-rows", "32"}),
            "--table-rows 32: expected it with --model wide_deep or dlrm only, but got simple_cnn");
  EXPECT_THAT(
      refusal_to_compare({"--model", "dlmr"}),
      AllOf(StartsWith("--model: expected simple_cnn, mobilenet_v2, wide_deep, dlrm, bytes, small, gpt2"),
            EndsWith(", but got 'dlmr' (did you mean dlrm?)")));
}

TEST(CompareOptions, RefusesFlagsThatTheKindOfModelsDoesNotHave) {
  EXPECT_EQ(
      refusal_to_compare({"--model", "dlrm", "--limit-train", "32"}),
      "--limit-train 32: expected it with --model simple_cnn or mobilenet_v2, small or another language "
      "model only, but got dlrm");
  EXPECT_EQ(
      refusal_to_compare({"--model", "small", "--optimizer", "sgd"}),
      "--optimizer sgd: expected it with --model simple_cnn or mobilenet_v2, wide_deep or dlrm only, but "
      "got small");
  EXPECT_EQ(refusal_to_compare({"--layers", "2"}),
            "--layers 2: expected it with --model small or another language model only, but got simple_cnn");
  EXPECT_EQ(
      refusal_to_compare({"--model", "small"}, "parameter_server:2"),
      "--strategies parameter_server:2: expected it with --model wide_deep or dlrm only, but got small");
}

TEST(CompareOptions, ReadsTheWorkOfLanguageModelsAsTrainGptDoes) {
  const auto options = compare_options_of(
      {"--model",         "gpt2", "--data",         "a.bin,b.bin", "--layers",           "2",
       "--heads",         "4",    "--precision",    "float64",     "--micro-batch-size", "3",
       "--learning-rate", "0.01", "--weight-decay", "0",           "--clip-norm",        "0",
       "--seed",          "7",    "--threads",      "1",           "--warmup-steps",     "2",
       "--steps",         "4",    "--recompute",    "every_block"});
  const auto& work = std::get<GptTrainOptions>(options.work);
  EXPECT_EQ(work.model, "gpt2");
  EXPECT_THAT(work.data, ElementsAre("a.bin", "b.bin"));
  EXPECT_EQ(work.layers, 2);
  EXPECT_EQ(work.heads, 4);
  EXPECT_EQ(work.precision, PrecisionKind::kFloat64);
  EXPECT_EQ(work.micro_batch_size, 3);
  EXPECT_EQ(work.learning_rate, 0.01);
  EXPECT_EQ(work.weight_decay, 0);
  EXPECT_EQ(work.clip_norm, 0);
  EXPECT_EQ(work.recompute, GptRecompute::kEveryBlock);
  EXPECT_EQ(work.seed, 7U);
  EXPECT_EQ(work.threads, 1);
  EXPECT_EQ(options.warmup_steps, 2);
  EXPECT_EQ(work.warmup_steps, 0) << "the learning rate is constant";
  EXPECT_EQ(work.schedule, GptSchedule::kConstant);
  EXPECT_EQ(examples_of(options.work), "tokens");
  for (const std::string flag : {"--test-every", "--sample", "--final-learning-rate", "--init-weights-from"})
    EXPECT_THAT(refusal_to_compare({"--model", "small", flag, "1"}),
                HasSubstr(flag + ": expected a flag of this program"));
}

TEST(CompareOptions, ResolvesTheLengthAndTheNumberOfSequences) {
  const auto small = std::get<GptTrainOptions>(compare_options_of({"--model", "small"}).work);
  EXPECT_EQ(small.sequence_length, 128);
  EXPECT_EQ(small.global_batch_size, 32);
  const auto gpt2 =
      std::get<GptTrainOptions>(compare_options_of({"--model", "gpt2", "--tokens-per-step", "8192"}).work);
  EXPECT_EQ(gpt2.sequence_length, 1024);
  EXPECT_EQ(gpt2.global_batch_size, 8);
}

TEST(CompareOptions, RefusesSizesOfLanguageModelsBeforeAnyProcessStarts) {
  EXPECT_EQ(refusal_to_compare({"--model", "small", "--heads", "3"}),
            "--heads 3: expected a divisor of the 128 of --hidden");
  EXPECT_EQ(refusal_to_compare({"--model", "gpt2", "--sequence-length", "2000"}),
            "--sequence-length 2000: expected at most 1024, the positions of gpt2");
  EXPECT_EQ(refusal_to_compare({"--model", "small", "--tokens-per-step", "100"}),
            "--tokens-per-step 100: expected a multiple of the sequence length 128");
  EXPECT_THAT(
      refusal_to_compare({"--model", "small", "--tokens-per-step", "128", "--global-batch-size", "1"}),
      AllOf(HasSubstr("--tokens-per-step"), HasSubstr("--global-batch-size")));
}

TEST(CompareOptions, HelpTellsTheKindsOfModelsApart) {
  const std::string help = compare_help_text(kNames);
  for (const std::string text : {"--sequence-length", "Tokens: Tokens in a sequence", "--tokens-per-step",
                                 "Clicks: ", "a Llama of 2 layers of 128"})
    EXPECT_THAT(help, HasSubstr(text));
}

TEST(CompareOptions, ReadsTheFlagsThatItGivesToItself) {
  const MeasuringProcess process{.strategy = 1, .process = 2, .result = "a.json", .parameters = "b"};
  auto flags = measuring_flags(process);
  const auto read = compare_options_of(flags, "default,multi_worker:3").measuring;
  EXPECT_EQ(read.strategy, 1);
  EXPECT_EQ(read.process, 2);
  EXPECT_EQ(read.result, "a.json");
  EXPECT_EQ(read.parameters, "b");
  EXPECT_EQ(compare_options_of({}).measuring.strategy, -1);
}

TEST(CompareOptions, HelpListsTheFlagsForPeopleOnly) {
  const std::string help = compare_help_text(kNames);
  for (const std::string flag : {"--strategies",    "--steps",
                                 "--warmup-steps",  "--rounds",
                                 "--out",           "--timeout",
                                 "--quiet",         "--data",
                                 "--model",         "--global-batch-size",
                                 "--precision",     "--optimizer",
                                 "--learning-rate", "--seed",
                                 "--threads",       "Examples:",
                                 "multi_worker",    "--ps",
                                 "--table-rows",    "wide_deep or dlrm"}) {
    EXPECT_THAT(help, HasSubstr(flag));
  }
  EXPECT_THAT(help, Not(HasSubstr("--measure")));
}

TEST(CompareOptions, HelpFitsIntoATerminalOf100Columns) {
  std::istringstream help(compare_help_text(kNames));
  for (std::string line; std::getline(help, line);) EXPECT_LE(line.size(), 100U) << line;
}

}  // namespace
}  // namespace lockstep::apps
