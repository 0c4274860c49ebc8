#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace lockstep::benchmarks {
namespace {

using testing::HasSubstr;

/// Returns the JSON that `speed_benchmark flags` writes.
nlohmann::json run_benchmark(const std::string& flags) {
  const std::string file = testing::TempDir() + "benchmark_parts_test.json";
  std::remove(file.c_str());
  const std::string command = LOCKSTEP_SPEED_BENCHMARK " --json " + file + ' ' + flags;
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::ifstream stream(file);
  return nlohmann::json::parse(stream);
}

class BenchmarkParts : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(LOCKSTEP_SPEED_BENCHMARK).empty())
      GTEST_SKIP() << "this build has no speed_benchmark (a sanitizer, or no jemalloc)";
  }
};

TEST_F(BenchmarkParts, OpsHasARowForEachOpAndSizeAndSaysWhyNcclHasNone) {
  const auto json = run_benchmark("--parts ops --pairs 6 --steps 1 --replicas 3 --global-batch-size 3");
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
}

TEST_F(BenchmarkParts, APartThatCannotBeMeasuredSaysWhy) {
  const auto json = run_benchmark("--parts profile,torch,ops --replicas 1");
  std::map<std::string, std::string> reasons;
  for (const auto& row : json["not_measured"]) reasons[row["part"]] = row["reason"];
  EXPECT_EQ(reasons["profile"], "no GPU");
  EXPECT_EQ(reasons["torch"], "no --peer-torch-python");
  EXPECT_THAT(reasons["ops"], HasSubstr("--replicas"));
  EXPECT_TRUE(json["profiles"].empty());
}

}  // namespace
}  // namespace lockstep::benchmarks
