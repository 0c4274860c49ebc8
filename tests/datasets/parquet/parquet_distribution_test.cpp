// Parquet files under strategies: the order of their rows for any number of replicas and workers, and where a
// training goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "lockstep/datasets/parquet/parquet_dataset.h"
#include "lockstep/strategies/input/distributed_dataset.h"
#include "lockstep/tests/datasets/parquet/parquet_files.h"
#include "lockstep/tests/support/dataset_on_replicas.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using testing::TemporaryFolder;
using Rows = std::vector<int64_t>;
using RowsOfSteps = std::vector<std::vector<Rows>>;  // of each replica

/// Returns the numbers of the rows, and checks that the other columns belong to them.
Rows rows_of(const ParquetBatch& shard) {
  const Rows rows = numbers_of(shard.columns[0].values.contiguous());
  std::vector<ParquetBatch> expected;
  for (const int64_t row : rows) expected.push_back({numbered_rows(row, 1)});
  if (rows.empty()) return rows;
  const ParquetBatch all = ParquetBatch::cat(expected);
  EXPECT_TRUE(shard.columns[1].values.equal(all.columns[1].values));
  EXPECT_TRUE(shard.columns[2].values.equal(all.columns[2].values));
  EXPECT_TRUE(shard.columns[2].offsets.equal(all.columns[2].offsets));
  return rows;
}

/// Returns the rows of up to `limit` steps of one loop.
RowsOfSteps steps_of(DistributedDataset<ParquetBatch>& batches, int64_t limit = 1000) {
  RowsOfSteps steps;
  if (limit == 0) return steps;
  for (const auto& batch : batches) {
    steps.emplace_back();
    for (const ParquetBatch& shard : batch.local_values()) steps.back().push_back(rows_of(shard));
    if (static_cast<int64_t>(steps.size()) == limit) break;
  }
  return steps;
}

Rows joined_rows(const std::vector<Rows>& shards) {
  Rows rows;
  for (const Rows& shard : shards) rows.insert(rows.end(), shard.begin(), shard.end());
  return rows;
}

/// Files with random numbers of rows and row groups, and how they are read.
struct RandomFiles {
  explicit RandomFiles(uint64_t seed) : random(seed) {
    const int64_t num_files = 1 + static_cast<int64_t>(random() % 5);
    for (int64_t file = 0; file < num_files; ++file) {
      const auto rows = static_cast<int64_t>(random() % 60);
      write_numbered(folder.file("part_" + std::to_string(file) + ".parquet"), num_rows, rows,
                     1 + static_cast<int64_t>(random() % 20));
      num_rows += rows;
    }
    options.paths = {folder.path()};
    options.lanes = static_cast<int64_t>(random() % 5);
    options.memory_limit = 20'000;
    distribution = {.global_batch_size = 1 + static_cast<int64_t>(random() % 17),
                    .shuffle_seed = random() % 3 ? std::optional(random()) : std::nullopt,
                    .shuffle_window = random() % 2 ? 7 : 0,
                    .drop_remainder = random() % 4 == 0,
                    .prefetch = static_cast<int>(random() % 3),
                    .num_workers = 1 + static_cast<int>(random() % 2)};
  }

  std::mt19937_64 random;
  TemporaryFolder folder;
  int64_t num_rows = 0;
  ParquetDatasetOptions options;
  DistributeOptions distribution;
};

TEST(ParquetDistribution, GivesTheSameOrderToAnyNumberOfReplicasAndWorkersAndGoesOnAnywhere) {
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    RandomFiles files(seed);
    const int64_t batch_size = *files.distribution.global_batch_size;
    // Two epochs on one replica: each row once in each.
    std::vector<std::vector<Rows>> epochs(2);
    {
      OnReplicas one(1);
      auto batches = one->distribute_dataset(ParquetDataset(files.options), files.distribution);
      for (auto& epoch : epochs)
        for (const auto& step : steps_of(batches)) epoch.push_back(joined_rows(step));
    }
    for (const auto& epoch : epochs) {
      Rows rows = joined_rows(epoch);
      const int64_t expected =
          files.distribution.drop_remainder ? files.num_rows / batch_size * batch_size : files.num_rows;
      EXPECT_EQ(static_cast<int64_t>(rows.size()), expected);
      EXPECT_EQ(std::set<int64_t>(rows.begin(), rows.end()).size(), rows.size());
      if (!files.distribution.shuffle_seed) {
        EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
      }
    }
    const auto num_steps = static_cast<int64_t>(epochs[0].size());
    for (int replicas = 2; replicas <= 4; ++replicas) {
      OnReplicas several(replicas);
      const auto made = [&] {
        return several->distribute_dataset(ParquetDataset(files.options), files.distribution);
      };
      // Stops anywhere in the second epoch, and resumes with another object.
      const auto stop =
          num_steps == 0 ? 0 : static_cast<int64_t>(files.random() % static_cast<uint64_t>(num_steps));
      auto first = made();
      std::vector<std::vector<Rows>> got(2);
      for (const auto& step : steps_of(first)) got[0].push_back(joined_rows(step));
      for (const auto& step : steps_of(first, stop)) got[1].push_back(joined_rows(step));
      auto rest = made();
      rest.restore(stop > 0 ? first.position() : DatasetPosition{1, 0});
      for (const auto& step : steps_of(rest)) got[1].push_back(joined_rows(step));
      EXPECT_EQ(got, epochs) << "seed " << seed << ", " << replicas << " replicas, stopped after " << stop;
    }
  }
}

TEST(ParquetDistribution, LetsWorkersReadTheirOwnRowGroupsInTheOrderOfOneReplica) {
  const TemporaryFolder folder;
  for (int file = 0; file < 4; ++file)
    write_numbered(folder.file("part_" + std::to_string(file) + ".parquet"), 160 * file, 160, 10);
  const ParquetDatasetOptions options{.paths = {folder.path()}, .lanes = 4};
  const DistributeOptions distribution{.global_batch_size = 16, .shuffle_seed = 3};
  std::vector<Rows> expected;
  {
    OnReplicas one(1);
    auto batches = one->distribute_dataset(ParquetDataset(options), distribution);
    for (const auto& step : steps_of(batches)) expected.push_back(joined_rows(step));
  }
  for (const auto& layout : std::vector<std::vector<int>>{{1, 1}, {2, 2}, {1, 1, 1, 1}}) {
    std::vector<RowsOfSteps> steps(layout.size());
    std::vector<int64_t> decoded(layout.size());
    for (const auto& error : run_strategies(layout, [&](MultiWorkerMirroredStrategy& strategy) {
           const auto worker = static_cast<size_t>(strategy.cluster_resolver()->rank());
           const ParquetDataset dataset(options);
           auto batches = strategy.distribute_dataset(dataset, distribution);
           steps[worker] = steps_of(batches);
           decoded[worker] = dataset.num_decoded_row_groups();
         }))
      EXPECT_FALSE(error);
    std::vector<Rows> joined(expected.size());
    for (const auto& of_worker : steps) {
      ASSERT_EQ(of_worker.size(), expected.size());
      for (size_t step = 0; step < expected.size(); ++step)
        for (const Rows& shard : of_worker[step])
          joined[step].insert(joined[step].end(), shard.begin(), shard.end());
    }
    EXPECT_EQ(joined, expected);
    // 64 row groups, and one more at the end of each lane that lies within one.
    EXPECT_LE(std::accumulate(decoded.begin(), decoded.end(), int64_t{0}), 64 + 4);
    for (const int64_t count : decoded)
      EXPECT_LE(count, 64 / static_cast<int64_t>(layout.size()) + 4 / static_cast<int64_t>(layout.size()));
  }
}

TEST(ParquetDistribution, DecodesEachRowGroupOnceAnEpoch) {
  const TemporaryFolder folder;
  write_numbered(folder.file("rows.parquet"), 0, 1000, 20);
  const int64_t bytes = ParquetFile({.path = folder.file("rows.parquet")}).decoded_bytes(0);
  const ParquetDataset dataset({.paths = {folder.path()}, .memory_limit = 20 * bytes});
  // Half of five sixths of the limit, less a row group, in which the places of its rows are counted, too.
  EXPECT_EQ(dataset.max_open_chunks(), 6U);
  OnReplicas two(2);
  auto batches = two->distribute_dataset(dataset, {.global_batch_size = 50, .shuffle_seed = 1});
  for (int64_t epoch = 1; epoch <= 3; ++epoch) {
    steps_of(batches);
    // Those that lie across a lane's end may be needed twice.
    EXPECT_LE(dataset.num_decoded_row_groups(), epoch * (50 + 5));
  }
  EXPECT_LE(dataset.peak_memory(), 20 * bytes);
}

}  // namespace
}  // namespace lockstep
