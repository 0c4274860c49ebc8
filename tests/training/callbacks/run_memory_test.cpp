// The memory by part that RecordRun records.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/training/callbacks/profiler.h"
#include "lockstep/training/callbacks/record_run.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/optimizers/fused_sgd.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

constexpr int64_t kColumns = 1 << 14;
constexpr int64_t kRows = 8;  // of each replica's shard
constexpr int64_t kParameters = kColumns * 8;
constexpr int64_t kOutputBytes = kRows * kColumns * 8;

/// tanh(x * weight), [n, 1] to [n, kColumns], in float64: keeps one output for backward.
struct WideNetImpl : public torch::nn::Module {
  WideNetImpl() { weight = register_parameter("weight", torch::ones({1, kColumns}, torch::kDouble)); }
  torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(x * weight); }
  torch::Tensor weight;
};
TORCH_MODULE(WideNet);

torch::Tensor squared(const torch::Tensor& outputs, const torch::Tensor&) {
  return outputs.square().sum(1);
}

/// Returns the rows of kind "memory" and "memory_of_rank" after `num_steps` steps on two replicas.
std::vector<nlohmann::json> rows_after(int64_t num_steps, bool counts = true,
                                       const Callbacks& others_before = {},
                                       const Callbacks& others_after = {}) {
  const testing::TemporaryFolder folder;
  const RunDirectory directory(folder.path() + "/run");
  const auto record = std::make_shared<RecordRun>(
      directory.paths(), RecordRunOptions{.histograms = false, .counts_activations = counts});
  Callbacks callbacks = others_before;
  callbacks.push_back(record);
  callbacks.insert(callbacks.end(), others_after.begin(), others_after.end());
  MirroredStrategy strategy({"cpu:0", "cpu:1"}, {.intra_op_threads = 1});
  Trainer<WideNet> trainer(
      strategy, [](ReplicaContext&) { return WideNet(); },
      [](const std::vector<torch::Tensor>& parameters) {
        return FusedSgd(parameters, FusedSgdOptions(0.1).momentum(0.9));
      },
      squared);
  const auto data = torch::ones({num_steps * 2 * kRows, 1}, torch::kDouble);
  trainer.fit(data, data, {.epochs = 1, .callbacks = callbacks, .batches = {.global_batch_size = 2 * kRows}});
  record->finish(RunStatus::kCompleted);
  EXPECT_EQ(record->record().memory.has_value(), true);
  std::vector<nlohmann::json> rows;
  std::ifstream lines(directory.paths().metrics_jsonl());
  for (std::string line; std::getline(lines, line);) {
    auto row = nlohmann::json::parse(line);
    if (row["kind"].get<std::string>().starts_with("memory")) rows.push_back(std::move(row));
  }
  std::ifstream report(directory.paths().report());
  const std::string html{std::istreambuf_iterator<char>(report), {}};
  EXPECT_THAT(html, ::testing::HasSubstr("<h2>Memory</h2>"));
  EXPECT_THAT(html, ::testing::HasSubstr("Memory per rank"));
  return rows;
}

nlohmann::json memory_after(int64_t num_steps, bool counts = true, const Callbacks& others_before = {},
                            const Callbacks& others_after = {}) {
  const auto rows = rows_after(num_steps, counts, others_before, others_after);
  EXPECT_EQ(rows.at(0)["kind"], "memory");
  return rows.at(0);
}

TEST(RunMemoryTest, RecordsEachRanksMemoryBesideTheFormula) {
  const auto rows = rows_after(4);
  ASSERT_EQ(rows.size(), 3U);
  for (size_t i = 0; i < 2; ++i) {
    const auto& rank = rows[i + 1];
    EXPECT_EQ(rank["kind"], "memory_of_rank");
    EXPECT_EQ(rank["rank"], i);
    for (const std::string prefix : {"", "predicted_"}) {
      for (const std::string part : {"parameters", "gradients", "optimizer_state"})
        EXPECT_EQ(rank[prefix + part], kParameters) << prefix + part;
    }
  }
}

TEST(RunMemoryTest, RecordsExactBytesOfWhatStaysAndTheActivationsOfAStep) {
  const auto memory = memory_after(4);
  EXPECT_EQ(memory["parameters"], 2 * kParameters);
  EXPECT_EQ(memory["optimizer_state"], 2 * kParameters);
  EXPECT_EQ(memory["communication_buckets"], 2 * kParameters);
  EXPECT_EQ(memory["gradients"], 0);
  EXPECT_EQ(memory["buffers"], 0);
  // At least tanh's result on both replicas and its gradient on the one that is first; at most the product,
  // tanh's result, its square, and their gradients, on both at once.
  EXPECT_GE(memory["activations"].get<int64_t>(), 3 * kOutputBytes);
  EXPECT_LE(memory["activations"].get<int64_t>(), 2 * 6 * kOutputBytes);
  EXPECT_GE(memory["peak_of_process"].get<int64_t>(), 6 * kParameters + memory["activations"].get<int64_t>());
}

TEST(RunMemoryTest, CountsActivationsOnCpusOnlyIfAskedTo) {
  const auto memory = memory_after(4, /*counts=*/false);
  EXPECT_EQ(memory["parameters"], 2 * kParameters);
  EXPECT_FALSE(memory.contains("activations"));
}

TEST(RunMemoryTest, ShortFitsHaveNoActivations) {
  const auto memory = memory_after(2);
  EXPECT_EQ(memory["parameters"], 2 * kParameters);
  EXPECT_FALSE(memory.contains("activations"));
}

TEST(RunMemoryTest, GetsAlongWithTheProfiler) {
  const testing::TemporaryFolder folder;
  for (const int64_t skip : {1, 2, 3}) {
    const auto profiler = [&](const char* name) {
      return std::make_shared<Profiler>(ProfilerOptions{
          .path = folder.path() + "/" + std::to_string(skip) + name, .skip_steps = skip, .steps = 2});
    };
    EXPECT_EQ(memory_after(6, true, {profiler("before")})["parameters"], 2 * kParameters) << skip;
    EXPECT_EQ(memory_after(6, true, {}, {profiler("after")})["parameters"], 2 * kParameters) << skip;
  }
}

}  // namespace
}  // namespace lockstep
