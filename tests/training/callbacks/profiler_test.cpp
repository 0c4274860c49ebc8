#include "lockstep/training/callbacks/profiler.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/test_files.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

/// How often an operator occurs in the trace, by thread.
std::map<int64_t, int> calls_of(const std::string& operation, const std::string& path) {
  std::ifstream file(path);
  std::map<int64_t, int> calls;
  const auto trace = nlohmann::json::parse(file);
  for (const auto& event : trace["traceEvents"]) {
    if (event.value("cat", "") == "cpu_op" && event.value("name", "") == operation)
      ++calls[event["tid"].get<int64_t>()];
  }
  return calls;
}

TEST(Profiler, TracesTheStepsOfEveryReplica) {
  const testing::TemporaryFolder folder;
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  const auto data = examples_of_three_classes();
  Trainer trainer(
      strategy, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy);
  const std::string path = folder.path() + "/profile.json";
  trainer.fit(
      data.data, data.target,
      {.epochs = 3,
       .callbacks = {std::make_shared<Profiler>(ProfilerOptions{.path = path, .skip_steps = 2, .steps = 3})},
       .batches = {.global_batch_size = kBatchSize}});
  // TanhNet calls tanh once per forward.
  const auto calls = calls_of("aten::tanh", path);
  ASSERT_EQ(calls.size(), 2U);
  for (const auto& [thread, count] : calls) EXPECT_EQ(count, 3);
}

TEST(Profiler, WritesWhatThereIsWhereTheFitEndsEarlier) {
  const testing::TemporaryFolder folder;
  DefaultStrategy strategy;
  const auto data = examples_of_three_classes();
  Trainer trainer(
      strategy, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy);
  const std::string path = folder.path() + "/profile.json";
  trainer.fit(data.data, data.target,
              {.callbacks = {std::make_shared<Profiler>(ProfilerOptions{.path = path, .skip_steps = 1})},
               .batches = {.global_batch_size = kBatchSize}});
  const auto calls = calls_of("aten::tanh", path);
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls.begin()->second, 2);
}

TEST(Profiler, OverwritesNothing) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/profile.json";
  std::ofstream(path) << "kept";
  EXPECT_THROW(Profiler({.path = path}), InvalidArgument);
  EXPECT_THROW(Profiler({.path = ""}), InvalidArgument);
  EXPECT_THROW(Profiler({.path = folder.path() + "/new.json", .steps = 0}), InvalidArgument);
  if (!at::hasCUDA()) {
    EXPECT_THROW(Profiler({.output = ProfilerOutput::kNvtx}), InvalidArgument);
  }
}

}  // namespace
}  // namespace lockstep
