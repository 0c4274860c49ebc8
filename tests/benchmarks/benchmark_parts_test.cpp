#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace lockstep::benchmarks {
namespace {

using testing::HasSubstr;

std::string text_of_file(const std::string& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::map<std::string, std::string> reasons_in(const nlohmann::json& json) {
  std::map<std::string, std::string> reasons;
  for (const auto& row : json["not_measured"]) reasons[row["part"]] = row["reason"];
  return reasons;
}

int count_in(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class BenchmarkParts : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(LOCKSTEP_SPEED_BENCHMARK).empty())
      GTEST_SKIP() << "this build has no speed_benchmark (a sanitizer, or no jemalloc)";
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  struct Run {
    nlohmann::json json;
    std::string errors;  ///< what it printed on standard error
  };

  /// Runs `speed_benchmark flags`.
  Run run_benchmark(const std::string& flags, int exit_code = 0) const {
    const std::string command =
        LOCKSTEP_SPEED_BENCHMARK " --json " + folder_ + "/json " + flags + " 2>" + folder_ + "/errors";
    const int status = std::system(command.c_str());
    Run run{.errors = text_of_file(folder_ + "/errors")};
    EXPECT_EQ(WEXITSTATUS(status), exit_code) << command << '\n' << run.errors;
    run.json = nlohmann::json::parse(text_of_file(folder_ + "/json"));
    return run;
  }

  const std::string folder_ = testing::TempDir() + "benchmark_parts_test_" + std::to_string(getpid());
};

TEST_F(BenchmarkParts, OpsHasARowForEachOpAndSizeAndSaysWhyNcclHasNone) {
  const auto [json, errors] =
      run_benchmark("--parts ops --pairs 6 --steps 1 --replicas 3 --global-batch-size 3");
  std::map<std::string, std::set<int64_t>> sizes;
  for (const auto& row : json["ops"]) {
    EXPECT_EQ(row["replicas"], "3 replicas on cpu:0, cpu:1, cpu:2");
    if (row["op"] == "nccl") {
      EXPECT_EQ(row["not_measured"], "no GPU");
      continue;
    }
    EXPECT_TRUE(sizes[row["op"]].insert(row["bytes"].get<int64_t>()).second) << row;
    EXPECT_GT(row["seconds_median"], 0) << row;
    EXPECT_EQ(row.contains("ratio"), row["op"] != "hierarchical_copy") << row;
  }
  // torchvision's mobilenet_v2 with num_classes=10 has 2236682 parameters.
  const std::set<int64_t> expected{64 << 10, 512 << 10, 4 << 20, 32 << 20, 4 * 2236682};
  EXPECT_EQ(sizes["hierarchical_copy"], expected);
  EXPECT_EQ(sizes["reduction_to_one_device"], expected);
  EXPECT_EQ(json["ops"].size(), 2 * expected.size() + 1);
  // A reader of the output sees progress after each pair.
  for (const char* payload : {"64 KiB", "512 KiB", "4 MiB", "32 MiB", "gradient buckets of MobileNetV2"}) {
    EXPECT_THAT(errors,
                HasSubstr(std::string("    reduction_to_one_device, ") + payload + "\n    pair 1 of 6: "));
  }
  EXPECT_EQ(count_in(errors, "    pair 6 of 6: ratio "), 5);
}

// There are no such GPUs, so that the parts fail once the peer has been started.
TEST_F(BenchmarkParts, GivePyTorchARankOnEachOfSeveralGpus) {
  const std::string python = folder_ + "/python";
  const std::string calls = folder_ + "/calls";
  std::ofstream(folder_ + "/torch_ddp.py") << "";
  std::ofstream(python) << "#!/bin/sh\nshift\necho \"$@\" >>" << calls << "\necho ready 1\ncat >/dev/null\n";
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  const auto [json, errors] = run_benchmark(
      "--gpus gpu:98,gpu:99 --global-batch-size 4 --parts torch,torch_compiled,workers --peers " + folder_ +
          " --peer-torch-python " + python,
      1);
  const std::string flags = "--replicas 2 --global-batch-size 4 --image-size 64 --gpus gpu:98,gpu:99";
  EXPECT_EQ(text_of_file(calls), flags + "\n" + flags + " --compile\n");
  const auto reasons = reasons_in(json);
  for (const char* part : {"torch", "torch_compiled", "workers"}) {
    ASSERT_TRUE(reasons.contains(part)) << json;
    EXPECT_THAT(reasons.at(part), HasSubstr("ended before it answered"));
  }
  EXPECT_THAT(errors, HasSubstr("'gpu:98': there is no"));
  EXPECT_THAT(errors, HasSubstr("    starting PyTorch DDP, NCCL, fused Adam, torch.compile, 2 processes\n"));
}

constexpr const char* kSmallPipeline =
    "--model gpt --parts pipeline --schedules gpipe --layers 2 --width 64 --sequence-length 8 "
    "--global-batch-size 2 --micro-batches 2 --pairs 6 --steps 1 --warm-up-steps 1";

TEST_F(BenchmarkParts, PipelineComparesThreadsAndWorkersWithReplicas) {
  const auto json = run_benchmark(kSmallPipeline).json;
  std::map<std::string, std::string> others;
  for (const auto& row : json["ratios"]) {
    others[row["lockstep"]] = row["against"];
    EXPECT_GT(row["ratio"], 0) << row;
  }
  const std::map<std::string, std::string> expected{
      {"1 replica of 2 ranks, pipeline=2, gpipe of 2", "2 replicas, data=2"},
      {"2 workers of a replica, pipeline=2, gpipe of 2", "2 workers of 1 replica each, data=2"}};
  EXPECT_EQ(others, expected);
  EXPECT_EQ(reasons_in(json)["a pipeline of workers against PyTorch"], "no --peer-torch-python");
}

TEST_F(BenchmarkParts, PeersOfAPipelineMustComputeTheSameLosses) {
  constexpr int kParameters = (256 + 8) * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64 + 256 * 64;
  const std::string python = folder_ + "/python";
  const std::string calls = folder_ + "/calls";
  std::ofstream(folder_ + "/torch_ddp.py") << "";
  std::ofstream(python) << "#!/bin/sh\nshift\necho \"$@\" >>" << calls << "\necho ready " << kParameters
                        << "\nwhile read line; do echo 1.5; done\n";
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  const auto json =
      run_benchmark(std::string(kSmallPipeline) + " --peers " + folder_ + " --peer-torch-python " + python, 1)
          .json;
  EXPECT_THAT(text_of_file(calls), HasSubstr(" --pipeline gpipe --micro-batches 2\n"));
  EXPECT_THAT(reasons_in(json)["pipeline"],
              HasSubstr("expected the same losses on both sides, but in step 1 that of PyTorch pipeline, "
                        "gpipe, Gloo, fused AdamW, as installed is 1.5 and Lockstep's 5.5"));
}

TEST_F(BenchmarkParts, APartThatCannotBeMeasuredSaysWhy) {
  const auto json = run_benchmark("--parts profile,torch,ops --replicas 1").json;
  auto reasons = reasons_in(json);
  EXPECT_EQ(reasons["profile"], "no GPU");
  EXPECT_EQ(reasons["torch"], "no --peer-torch-python");
  EXPECT_THAT(reasons["ops"], HasSubstr("--replicas"));
  EXPECT_TRUE(json["profiles"].empty());
}

}  // namespace
}  // namespace lockstep::benchmarks
