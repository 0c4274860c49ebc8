// Measurements, output and exit codes of the built compare_strategies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/tests/apps/compare_strategies/compare_program.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CompareStrategiesProgram, TrainsTheSameParametersByEveryStrategyInFloat64) {
  const auto result = compare_shortly("default,mirrored:2,one_device,mirrored:3,multi_worker:2",
                                      {"--optimizer", "sgd", "--precision", "float64"});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const auto json = results();
  const std::vector<int> replicas{1, 2, 1, 3, 2};
  ASSERT_EQ(json["strategies"].size(), replicas.size());
  for (size_t i = 0; i < replicas.size(); ++i) {
    const auto& row = json["strategies"][i];
    EXPECT_EQ(row["replicas"], replicas[i]) << row;
    EXPECT_LT(row["parameter_difference"], 1e-10) << row;
    EXPECT_NEAR(row["loss"].get<double>(), json["strategies"][0]["loss"].get<double>(), 1e-10) << row;
    EXPECT_EQ(row["losses"].size(), 4U);
    EXPECT_GT(row["examples_per_second"]["median"], 0);
    EXPECT_EQ(row["communication_share"] > 0, replicas[i] > 1) << row;
    EXPECT_LT(row["communication_share"], 1) << row;
    EXPECT_GE(row["data_wait_share"], 0) << row;
    // Parameters have no padding, and every rank has all of them.
    const auto& parameters = row["memory_of_ranks"]["parameters"];
    EXPECT_EQ(parameters["least"], parameters["predicted"]) << row;
    EXPECT_EQ(parameters["most"], parameters["predicted"]) << row;
    EXPECT_EQ(parameters["predicted"], json["work"]["parameters"].get<int64_t>() * 8) << row;
  }
  // Every process loads LibTorch: two take more memory than one.
  EXPECT_GT(json["strategies"][4]["peak_memory_bytes"].get<double>(),
            1.3 * json["strategies"][0]["peak_memory_bytes"].get<double>());
  EXPECT_EQ(json["reference"], "default");
}

TEST_F(CompareStrategiesProgram, TrainsOnThePluginsDeviceAndACpuTogether) {
  const auto result = compare({"--strategies",
                               "mirrored:cpu:0,mirrored:testdevice:0,mirrored:cpu:0+testdevice:1,"
                               "mirrored:cpu:0+testdevice:0@1+3,tpu:testdevice:0+testdevice:1",
                               "--data", "generated", "--limit-train", "640", "--steps", "4", "--rounds", "1",
                               "--optimizer", "sgd", "--precision", "float64"},
                              {.variables = {{"LOCKSTEP_DEVICE_PLUGIN", TEST_DEVICE_PLUGIN}}});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const auto json = results();
  const std::vector<int> replicas{1, 1, 2, 2, 2};
  ASSERT_EQ(json["strategies"].size(), replicas.size());
  for (size_t i = 0; i < replicas.size(); ++i) {
    const auto& row = json["strategies"][i];
    EXPECT_EQ(row["replicas"], replicas[i]) << row;
    EXPECT_LT(row["parameter_difference"], 1e-10) << row;
    EXPECT_NEAR(row["loss"].get<double>(), json["strategies"][0]["loss"].get<double>(), 1e-10) << row;
  }
  EXPECT_EQ(json["strategies"][3]["devices"], (std::vector<std::string>{"cpu:0", "testdevice:0"}));
  EXPECT_EQ(json["strategies"][3]["replica_weights"], "1,3");
  EXPECT_THAT(json["strategies"][3]["description"].get<std::string>(),
              HasSubstr("batches cut by weights 1 3"));
  EXPECT_THAT(result.out,
              HasSubstr("mirrored:cpu:0+testdevice:0@1+3 in the first round: MirroredStrategy with 2 "
                        "replicas on cpu:0 testdevice:0"));
  EXPECT_THAT(json["strategies"][4]["description"].get<std::string>(),
              HasSubstr("TPUStrategy with 2 replicas"));
}

TEST_F(CompareStrategiesProgram, ShowsTheWeightsThatItMeasured) {
  const auto result =
      compare({"--strategies", "mirrored:cpu:0+testdevice:0@measured", "--data", "generated", "--limit-train",
               "640", "--steps", "40", "--rounds", "1"},
              {.variables = {{"LOCKSTEP_DEVICE_PLUGIN", TEST_DEVICE_PLUGIN}, {"TEST_DEVICE_SLOWDOWN", "4"}}});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const std::string description = results()["strategies"][0]["description"];
  EXPECT_THAT(description, HasSubstr("batches cut by measured weights 0."));
  EXPECT_THAT(result.out, HasSubstr(description));
}

TEST_F(CompareStrategiesProgram, SaysWhichDevicePluginCannotBeLoaded) {
  const auto result = compare({"--strategies", "default", "--data", "generated"},
                              {.variables = {{"LOCKSTEP_DEVICE_PLUGIN", folder_.path() + "/absent.so"}}});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.error,
              HasSubstr("LOCKSTEP_DEVICE_PLUGIN=" + folder_.path() + "/absent.so: cannot load the library"));
}

TEST_F(CompareStrategiesProgram, ListsParameterServersBesideMirroredReplicas) {
  const auto result = compare({"--strategies",
                               "mirrored:2,parameter_server:2:0,parameter_server:2",
                               "--ps",
                               "2",
                               "--model",
                               "wide_deep",
                               "--optimizer",
                               "sgd",
                               "--learning-rate",
                               "0.01",
                               "--precision",
                               "float64",
                               "--table-rows",
                               "1000",
                               "--embedding-dim",
                               "4",
                               "--global-batch-size",
                               "64",
                               "--steps",
                               "6",
                               "--rounds",
                               "1"});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, AllOf(HasSubstr("| rows/s "), HasSubstr("\n| parameter_server:2:0 | 2 "),
                                HasSubstr("\n| parameter_server:2   | 2 ")));
  EXPECT_THAT(result.error, HasSubstr(" rows/s"));
  const auto rows = results()["strategies"];
  ASSERT_EQ(rows.size(), 3U);
  const double mirrored_loss = rows[0]["loss"];
  EXPECT_LT(rows[1]["parameter_difference"], 1e-12) << "all workers make each step together";
  EXPECT_NEAR(rows[1]["loss"].get<double>(), mirrored_loss, 1e-12);
  EXPECT_GT(rows[2]["parameter_difference"], 1e-6) << "each worker steps by itself";
  EXPECT_LT(rows[2]["parameter_difference"], 0.1);
  EXPECT_EQ(rows[1]["processes"], 5);
  EXPECT_EQ(rows[1]["servers"], 2);
  EXPECT_EQ(rows[1]["max_staleness"], 0);
  EXPECT_EQ(rows[2]["max_staleness"], nullptr);
  for (const auto& row : rows) {
    EXPECT_EQ(row["losses"].size(), 6U);
    EXPECT_GT(row["examples_per_second"]["median"], 0);
    EXPECT_GT(row["communication_share"], 0);
    EXPECT_LT(row["communication_share"], 1);
  }
  EXPECT_GT(rows[1]["peak_memory_bytes"].get<double>(), 3 * rows[0]["peak_memory_bytes"].get<double>());
}

TEST_F(CompareStrategiesProgram, SaysWhichTaskOfParameterServersFailed) {
  const auto result = compare({"--strategies", "parameter_server:2,default", "--model", "dlrm", "--data",
                               "/nowhere", "--steps", "1", "--rounds", "1"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out, ::testing::ContainsRegex("(chief|worker) [01]: .*/nowhere"));
}

TEST_F(CompareStrategiesProgram, TrainsInTheOrderOfTheLossesThatOneProgramAloneHas) {
  // A step of plain SGD with rate r lowers the loss by about r times the squared norm of its gradient. With a
  // rate near zero, the loss stays at the chance level of ten classes.
  ASSERT_EQ(compare_shortly("default", {"--optimizer", "sgd", "--learning-rate", "1e-12"}).exit_code, 0);
  for (const auto& loss : results()["strategies"][0]["losses"]) EXPECT_NEAR(loss, std::log(10.0), 0.3);
}

TEST_F(CompareStrategiesProgram, PrintsOneTableAndWritesJsonAndAPage) {
  const auto result = compare_shortly("default,mirrored:2");
  ASSERT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out,
              AllOf(StartsWith("generated digits"), HasSubstr("| strategy   | replicas | images/s"),
                    HasSubstr("\n| default    | 1 "), HasSubstr("\n| mirrored:2 | 2 "),
                    HasSubstr("\nToo few rounds for advice: "), HasSubstr(out_ + "/report.html")));
  EXPECT_THAT(result.error, AllOf(HasSubstr("round 1/1  default  "), HasSubstr("round 1/1  mirrored:2  ")));
  const std::string page = text_of(out_ + "/report.html");
  EXPECT_THAT(
      page, AllOf(StartsWith("<!"), HasSubstr("<svg"), HasSubstr("mirrored:2"), HasSubstr("Images a second"),
                  HasSubstr("Loss of the global batch"), HasSubstr("Too few rounds for advice: ")));
  EXPECT_EQ(std::distance(fs::directory_iterator(out_), {}), 2);
}

TEST_F(CompareStrategiesProgram, PrintsNoProgressWhereItIsToBeQuiet) {
  EXPECT_EQ(compare_shortly("default", {"--quiet"}).error, "");
}

TEST_F(CompareStrategiesProgram, StartsEveryStrategyInEveryRoundInTurningOrder) {
  const auto result = compare_shortly("default,mirrored:2,one_device", {"--rounds", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  std::vector<std::string> order;
  std::istringstream lines(result.error);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("round ")) order.push_back(line.substr(0, line.rfind("  ")));
  }
  EXPECT_THAT(order,
              ::testing::ElementsAre("round 1/2  default", "round 1/2  mirrored:2", "round 1/2  one_device",
                                     "round 2/2  one_device", "round 2/2  mirrored:2", "round 2/2  default"));
  EXPECT_EQ(results()["strategies"][1]["ratio"]["rounds"].size(), 2U);
}

TEST_F(CompareStrategiesProgram, GoesOnWithTheOthersWhereOneFails) {
  const auto result = compare_shortly("default,one_device:3,mirrored:2", {"--rounds", "2"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out, AllOf(HasSubstr("exit code 2: --replicas 3: expected 1 with --strategy one_device"),
                                HasSubstr("| mirrored:2   | 2 ")));
  const auto rows = results()["strategies"];
  EXPECT_EQ(rows[1]["exit_code"], 2);
  EXPECT_THAT(rows[1]["error"].get<std::string>(), StartsWith("--replicas 3: expected 1"));
  EXPECT_EQ(rows[2]["examples_per_second"]["rounds"].size(), 2U);
  EXPECT_THAT(text_of(out_ + "/report.html"),
              HasSubstr("one_device:3 failed with exit code 2: --replicas 3: expected 1"));
}

TEST_F(CompareStrategiesProgram, SaysWhichWorkerFailed) {
  const auto result = compare_shortly("multi_worker:2,default", {"--data", "/nowhere"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(results()["strategies"][0]["error"].get<std::string>(),
              AllOf(StartsWith("worker "), HasSubstr("--data /nowhere: ")));
  EXPECT_THAT(result.out, HasSubstr("No strategy trained to the end"));
}

TEST_F(CompareStrategiesProgram, EndsAStrategyThatTakesTooLong) {
  const auto result = compare_shortly("default", {"--steps", "1000000", "--timeout", "2"});
  EXPECT_EQ(result.exit_code, 124);
  EXPECT_EQ(results()["strategies"][0]["error"], "did not end within the 2 s of --timeout");
}

TEST_F(CompareStrategiesProgram, RefusesBeforeAnythingRuns) {
  const auto refused = [&](const std::string& strategies, const std::vector<std::string>& more) {
    const auto result = compare_shortly(strategies, more);
    EXPECT_EQ(result.exit_code, 2) << result.error;
    EXPECT_THAT(result.error, StartsWith("compare_strategies: error: "));
    EXPECT_FALSE(fs::exists(out_ + "/comparison.json"));
    return result.error;
  };
  EXPECT_THAT(refused("default,mirored:2", {}), HasSubstr("(did you mean mirrored?)"));
  EXPECT_THAT(refused("default", {"--steps", "0"}), HasSubstr("--steps: expected a whole number from 1"));
  EXPECT_THAT(refused("default", {"--optimiser", "sgd"}), HasSubstr("(did you mean --optimizer?)"));
  fs::create_directories(out_);
  std::ofstream(out_ + "/file") << "kept";
  EXPECT_THAT(refused("default", {}), HasSubstr("there are files in it"));
}

TEST_F(CompareStrategiesProgram, MeasuresWhereItsArgumentsEndWithTwoDashes) {
  const auto result = compare_shortly("default", {"--"});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(results()["strategies"][0]["losses"].size(), 4U);
}

/// The number of processes of this program that are measuring for the folder `out`.
int num_measuring(const std::string& out) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string arguments = text_of(entry.path().string() + "/cmdline");
    if (arguments.find(out) != std::string::npos && arguments.find("--measure-result") != std::string::npos)
      ++count;
  }
  return count;
}

TEST_F(CompareStrategiesProgram, EndsAllProcessesWhereASignalStopsIt) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const bool is_users_folder = signal == SIGTERM;
    if (is_users_folder) fs::create_directories(out_);
    const pid_t program = fork();
    ASSERT_GE(program, 0);
    if (program == 0) {
      execl(COMPARE_STRATEGIES, COMPARE_STRATEGIES, "--out", out_.c_str(), "--threads", "1", "--strategies",
            "multi_worker:2", "--data", "generated", "--limit-train", "640", "--steps", "1000000", nullptr);
      _exit(127);
    }
    for (int i = 0; i < 3000 && num_measuring(out_) < 2; ++i) usleep(10000);
    EXPECT_EQ(num_measuring(out_), 2);
    kill(program, signal);
    int status = 0;
    ASSERT_EQ(waitpid(program, &status, 0), program);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + signal) << status;
    EXPECT_EQ(num_measuring(out_), 0);
    EXPECT_EQ(fs::exists(out_), is_users_folder) << "nothing was measured";
  }
}

TEST_F(CompareStrategiesProgram, GoesOnWithTheMeasurementsThatAreLeft) {
  const std::string backup = folder_.path() + "/backup";
  const auto run = [&](const std::string& out, const std::vector<std::string>& more) {
    out_ = folder_.path() + "/" + out;
    std::vector<std::string> arguments{"--backup-dir", backup};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return compare_shortly("default,mirrored:2", arguments);
  };
  ASSERT_EQ(run("first", {}).exit_code, 0);
  const auto first = results();
  const auto longer = run("second", {"--rounds", "2"});
  ASSERT_EQ(longer.exit_code, 0) << longer.error;
  EXPECT_THAT(longer.error,
              AllOf(HasSubstr("2 measurements are there already"), HasSubstr("round 2/2  default"),
                    HasSubstr("round 2/2  mirrored:2"), Not(HasSubstr("round 1/2"))));
  const auto second = results();
  for (size_t i = 0; i < 2; ++i) {
    const auto& rounds = second["strategies"][i]["examples_per_second"]["rounds"];
    ASSERT_EQ(rounds.size(), 2U);
    EXPECT_EQ(rounds[0], first["strategies"][i]["examples_per_second"]["rounds"][0]);
    EXPECT_EQ(second["strategies"][i]["losses"], first["strategies"][i]["losses"]);
    EXPECT_EQ(second["strategies"][i]["parameter_difference"],
              first["strategies"][i]["parameter_difference"]);
  }

  // One of four measurements is damaged.
  std::ofstream(backup + "/checkpoint-000000000002/measurement") << "damaged";
  const auto mended = run("third", {"--rounds", "2"});
  ASSERT_EQ(mended.exit_code, 0) << mended.error;
  EXPECT_THAT(mended.error,
              AllOf(HasSubstr("measured again, as it is damaged: "), HasSubstr("000002/measurement"),
                    HasSubstr("3 measurements are there already"), HasSubstr("round 1/2  mirrored:2"),
                    Not(HasSubstr("  default  "))));

  const auto other = run("fourth", {"--optimizer", "sgd"});
  EXPECT_EQ(other.exit_code, 4);
  EXPECT_THAT(other.error,
              HasSubstr("expected one of the same comparison, with optimizer sgd, but got optimizer adam"));
  // Measurements of another folder are copied.
  out_ = folder_.path() + "/copied";
  const auto of_others = compare_shortly(
      "default,mirrored:2", {"--rounds", "2", "--resume", backup, "--backup-dir", folder_.path() + "/copy"});
  ASSERT_EQ(of_others.exit_code, 0) << of_others.error;
  EXPECT_THAT(of_others.error,
              AllOf(HasSubstr("4 measurements are there already"), Not(HasSubstr("round "))));
  EXPECT_TRUE(fs::exists(folder_.path() + "/copy/checkpoint-000000000004"));
  const auto none = run("none", {"--resume", out_});
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_THAT(none.error, HasSubstr("expected a folder with measurements, but there are none"));
  const auto never = run("fifth", {"--resume", "never"});
  EXPECT_EQ(never.exit_code, 4);
  EXPECT_THAT(never.error, HasSubstr("--resume never: expected a --backup-dir without measurements"));
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(CompareStrategiesProgram, ASignalLeavesWhatIsMeasuredAndNamesTheCommandThatGoesOn) {
  const std::string backup = folder_.path() + "/backup", log = folder_.path() + "/log";
  const pid_t program = fork();
  ASSERT_GE(program, 0);
  if (program == 0) {
    if (freopen(log.c_str(), "w", stderr) == nullptr) _exit(126);
    execl(COMPARE_STRATEGIES, COMPARE_STRATEGIES, "--out", out_.c_str(), "--threads", "1", "--strategies",
          "default", "--data", "generated", "--limit-train", "640", "--steps", "4", "--rounds", "1000",
          "--backup-dir", backup.c_str(), nullptr);
    _exit(127);
  }
  for (int i = 0; i < 6000 && !fs::exists(backup + "/checkpoint-000000000002"); ++i) usleep(10000);
  EXPECT_TRUE(fs::exists(backup + "/checkpoint-000000000002"));
  kill(program, SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(program, &status, 0), program);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 143) << status;
  EXPECT_TRUE(fs::exists(backup + "/checkpoint-000000000002"));
  EXPECT_THAT(text_of(log), AllOf(HasSubstr("measurements are in " + backup + "; to resume, run: "),
                                  HasSubstr(" --rounds 1000 --backup-dir " + backup + "\n")));
}

TEST_F(CompareStrategiesProgram, ComparesStrategiesThatAreRegisteredByName) {
  const auto result = compare_shortly("default,finite_steps:3",
                                      {"--optimizer", "sgd", "--precision", "float64"}, COMPARE_OWN_STRATEGY);
  ASSERT_EQ(result.exit_code, 0) << result.error;
  const auto row = results()["strategies"][1];
  EXPECT_EQ(row["replicas"], 3);
  EXPECT_LT(row["parameter_difference"], 1e-10);
  EXPECT_THAT(row["description"].get<std::string>(), StartsWith("FiniteStepsStrategy"));
  const auto help = run_process(COMPARE_OWN_STRATEGY, {"--help"});
  EXPECT_THAT(help.out, HasSubstr("default, finite_steps, mirrored,"));
}

TEST_F(CompareStrategiesProgram, TrainsTheSameParametersOnMnist) {
  const char* folder = std::getenv("LOCKSTEP_MNIST_DIR");
  if (folder == nullptr || !fs::exists(folder))
    GTEST_SKIP() << "LOCKSTEP_MNIST_DIR names no folder with MNIST";
  const auto result =
      compare({"--strategies", "default,mirrored:2,one_device", "--model", "simple_cnn", "--steps", "50",
               "--rounds", "1", "--optimizer", "sgd", "--precision", "float64"},
              {.variables = {{"LOCKSTEP_MNIST_DIR", folder}}});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  for (const auto& row : results()["strategies"]) {
    EXPECT_LT(row["parameter_difference"], 1e-10) << row;
    EXPECT_EQ(row["losses"].size(), 50U);
  }
}

TEST_F(CompareStrategiesProgram, PrintsItsVersionAndItsHelp) {
  EXPECT_THAT(run_process(COMPARE_STRATEGIES, {"--version"}).out,
              ::testing::MatchesRegex("compare_strategies [0-9.]+, LibTorch 2\\.[0-9.]+\n"));
  const auto help = run_process(COMPARE_STRATEGIES, {"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("compare_strategies [flags]"), Not(HasSubstr("--measure"))));
}

}  // namespace
}  // namespace lockstep::testing
