#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>

namespace lockstep::benchmarks {
namespace {

using testing::HasSubstr;

struct Finished {
  int exit_code = -1;
  std::string output;  ///< both streams
};

Finished run_scaling_benchmark(const std::string& flags) {
  Finished finished;
  FILE* output = popen((LOCKSTEP_SCALING_BENCHMARK " " + flags + " 2>&1").c_str(), "r");
  if (output == nullptr) return finished;
  for (int byte = fgetc(output); byte != EOF; byte = fgetc(output))
    finished.output += static_cast<char>(byte);
  const int status = pclose(output);
  finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return finished;
}

class ScalingBenchmark : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(LOCKSTEP_SCALING_BENCHMARK).empty())
      GTEST_SKIP() << "this build has no scaling_benchmark (a sanitizer, or no jemalloc)";
  }
};

TEST_F(ScalingBenchmark, RefusesBadValuesNamingTheFlag) {
  for (const auto& [flags, expected] : std::vector<std::pair<std::string, std::string>>{
           {"--rounds 5", "--rounds: expected at least 6, but got 5"},
           {"--steps 0", "--steps: expected at least 1, but got 0"},
           {"--batch-size 1", "--batch-size: expected at least 2, but got 1"},
           {"--image-size 32", "--image-size: expected at least 33, but got 32"},
           {"--bucket-mebibytes 0", "--bucket-mebibytes: expected at least 1, but got 0"},
           {"--compression gzip", "--compression: expected float16 or bfloat16, but got 'gzip'"},
           {"--processes 1", "--processes: expected ascending numbers that begin with 1,2, but got 1"},
           {"--processes 1,4,2",
            "--processes: expected ascending numbers that begin with 1,2, but got 1,4,2"},
           {"--exchange-kibibytes 4", "--exchange-kibibytes: expected at least two sizes, but got 4"},
           {"--exchange-kibibytes 4,0", "--exchange-kibibytes: expected positive sizes, but got 4,0"},
           {"--links 10:25,fast", "--links: expected gigabits a second and microseconds"},
           {"--machine-link 10", "--machine-link: expected gigabits a second and microseconds"},
           {"--gpu-milliseconds 0", "--gpu-milliseconds: expected a positive number"},
           {"--gpus 0", "--gpus: expected at least 1, but got 0"},
           {"--no-such-flag", "no-such-flag"},
           {"--serve nonsense", "--serve: expected compute, exchange, exchanges, worker or workers"}}) {
    const auto [exit_code, output] = run_scaling_benchmark(flags);
    EXPECT_EQ(exit_code, 2) << flags;
    EXPECT_THAT(output, HasSubstr(expected)) << flags;
  }
}

TEST_F(ScalingBenchmark, HelpsWithoutTheFlagsOfItsJobs) {
  const auto [exit_code, output] = run_scaling_benchmark("--help");
  EXPECT_EQ(exit_code, 0);
  EXPECT_THAT(output, HasSubstr("--links"));
  EXPECT_THAT(output, HasSubstr("--gpu-milliseconds"));
  EXPECT_THAT(output, testing::Not(HasSubstr("--serve")));
}

TEST_F(ScalingBenchmark, MeasuresPredictsAndChecks) {
  const std::string file = testing::TempDir() + "scaling_benchmark_test.json";
  std::remove(file.c_str());
  const auto [exit_code, output] = run_scaling_benchmark(
      "--processes 1,2 --image-size 33 --batch-size 4 --strong-batch-size 8 --rounds 6 --steps 1 --links "
      "1:50,10:25 "
      "--exchange-kibibytes 4,256 --compression bfloat16 --json " +
      file);
  ASSERT_EQ(exit_code, 0) << output;
  for (const char* title : {"Predicted and measured on this machine", "weak scaling", "strong scaling",
                            "4 machines x 4 GPUs", "Nothing of this was measured", "The largest error is"})
    EXPECT_THAT(output, HasSubstr(title));
  EXPECT_THAT(output, HasSubstr("| 10 Gbit/s, 25 us | 1024    |"));
  std::ifstream stream(file);
  const auto json = nlohmann::json::parse(stream);

  // One process with three batch sizes, two processes with one.
  EXPECT_EQ(json["compute"].size(), 4);
  for (const auto& row : json["compute"]) {
    double bytes = 0;
    for (const auto& bucket : row["buckets"]) {
      bytes += bucket["bytes"].get<double>();
      EXPECT_LE(bucket["ready_seconds"], row["backward_seconds"]) << row;
    }
    EXPECT_EQ(bytes, 4 * 2236682) << row;  // torchvision's mobilenet_v2 with num_classes=10
  }
  // With and without compression, and three kinds over TCP.
  EXPECT_EQ(json["exchanges"].size(), 5);
  std::set<std::tuple<int, bool, std::string>> checked;
  for (const auto& row : json["checks"]) {
    checked.emplace(row["processes"], row["overlap"], row["compression"]);
    EXPECT_GT(row["measured_seconds"], 0);
    EXPECT_NEAR(row["error"],
                row["predicted_seconds"].get<double>() / row["measured_seconds"].get<double>() - 1, 1e-9);
    EXPECT_LE(std::abs(row["error"].get<double>()), json["worst_error"].get<double>());
  }
  const std::set<std::tuple<int, bool, std::string>> expected{{1, true, "none"},
                                                              {2, true, "none"},
                                                              {2, false, "none"},
                                                              {2, true, "bfloat16"},
                                                              {2, false, "bfloat16"}};
  EXPECT_EQ(checked, expected);
  std::set<std::pair<std::string, int>> predicted;
  for (const auto& row : json["weak_scaling"]) {
    predicted.emplace(row["link"], row["workers"]);
    ASSERT_EQ(row["predictions"].size(), 4);
    for (const auto& prediction : row["predictions"]) {
      EXPECT_LE(prediction["efficiency"], 1 + 1e-9) << row;
      EXPECT_GT(prediction["efficiency"], 0) << row;
    }
  }
  EXPECT_EQ(predicted.size(), 2 * 11);            // 1 to 1024 workers over each link
  EXPECT_EQ(json["bucket_sizes"].size(), 2 * 5);  // 4 to 1024 workers
  for (const auto& row : json["bucket_sizes"]) {
    EXPECT_LE(row["best_seconds"].get<double>(), row["chosen_seconds"].get<double>() * (1 + 1e-9)) << row;
    EXPECT_LE(row["best_seconds"].get<double>(), row["default_seconds"].get<double>() * (1 + 1e-9)) << row;
  }
  EXPECT_EQ(json["strong_scaling"].size(), 2 * 4);
  ASSERT_EQ(json["gpu_cluster"].size(), 2);
  EXPECT_EQ(json["gpu_cluster"][0]["is_measured"], false);
}

}  // namespace
}  // namespace lockstep::benchmarks
