// Layouts of models with tables of embeddings: on each replica, and by rows on parameter servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/layouts/layout_search.h"

namespace lockstep {
namespace {

constexpr double kRows = 1e5, kColumns = 16, kLookups = 20, kWeights = 1e4;

PlannedModel model_with_tables() {
  PlannedPart network{.name = "network"};
  network.elements.whole = kWeights;
  network.largest_tensor.whole = 5e3;
  network.input.whole = 4 * kLookups * kColumns;
  network.saved.whole = 4e3;
  network.forward_extra.whole = 1e3;
  network.backward_extra.whole = 2e3;
  network.forward.flops.whole = 2 * kWeights;
  network.backward.flops.whole = 4 * kWeights;
  PlannedModel model{.kinds = {network}, .parts = {0}, .input_bytes = 200};
  model.tables = {{kRows, kColumns, kLookups}, {kRows, 1, kLookups}};
  return model;
}

PlannedCluster cluster_of_cpus(int64_t devices) {
  return {.devices = devices,
          .devices_per_machine = devices,
          .memory_bytes = 1e9,
          .flops_per_second = 1e10,
          .bytes_per_second = 1e10,
          .within = {1e-5, 2e9},
          .taken_share = 1};
}

PlannedTraining training_of(int64_t batch) {
  return {.global_batch = batch, .optimizer_states = 1};
}

LayoutChoices choices_with_tables() {
  return {.stages = {0}, .with_recomputation = false, .most_micro_batches = 1};
}

double bytes_of_tables() {
  return 4 * kRows * (kColumns + 1);
}

TEST(PlannedTable, HasAsManyDifferentRowsAsRandomIdsHave) {
  std::mt19937 random(3);
  for (const auto& [rows, lookups] : {std::pair{1000, 5}, std::pair{50, 20}, std::pair{100'000, 26}}) {
    const PlannedTable table{.rows = static_cast<double>(rows), .lookups = static_cast<double>(lookups)};
    std::uniform_int_distribution<int> id(0, rows - 1);
    for (const int examples : {1, 16, 300}) {
      double mean = 0;
      const int trials = examples == 1 ? 500 : 20;
      for (int trial = 0; trial < trials; ++trial) {
        std::set<int> distinct;
        for (int i = 0; i < examples * lookups; ++i) distinct.insert(id(random));
        mean += static_cast<double>(distinct.size()) / trials;
      }
      EXPECT_NEAR(table.distinct_rows(examples) / mean, 1, 0.03) << rows << " rows, " << examples;
    }
  }
}

TEST(TableLayouts, DivideTheTablesAndTheirStateAmongServers) {
  const LayoutPlanner planner(model_with_tables(), cluster_of_cpus(4), training_of(64));
  EXPECT_EQ(planner.model().elements(), kWeights + kRows * (kColumns + 1));
  const auto replicated = planner.memory_of_ranks({.data = 4});
  ASSERT_EQ(replicated.size(), 1U);
  EXPECT_DOUBLE_EQ(replicated[0].tables, bytes_of_tables());
  EXPECT_DOUBLE_EQ(replicated[0].table_state, bytes_of_tables());
  EXPECT_LE(replicated[0].buckets, 4 * kWeights + 64) << "tables are summed by rows";
  const auto served = planner.memory_of_ranks({.data = 2, .servers = 2});
  ASSERT_EQ(served.size(), 2U);
  EXPECT_EQ(served[0].tables, 0);
  EXPECT_EQ(served[0].optimizer_state, 0);
  EXPECT_DOUBLE_EQ(2 * served[1].tables, bytes_of_tables());
  EXPECT_DOUBLE_EQ(2 * served[1].table_state, bytes_of_tables());
  EXPECT_DOUBLE_EQ(2 * (served[1].parameters + served[1].optimizer_state), 2 * 4 * kWeights);
  // A device must have room for either.
  EXPECT_DOUBLE_EQ(planner.memory({.data = 2, .servers = 2}).peak(), served[1].peak());
}

TEST(TableLayouts, HaveRowsOfTheBatchInFlight) {
  const LayoutPlanner planner(model_with_tables(), cluster_of_cpus(2), training_of(2048));
  const auto one = planner.memory({.data = 2}).rows;
  // At least the rows of both replicas, once as they come and once summed.
  const double distinct = PlannedTable{kRows, kColumns, kLookups}.distinct_rows(1024);
  EXPECT_GT(one, 2 * 2 * distinct * 4 * kColumns);
  const LayoutPlanner fewer(model_with_tables(), cluster_of_cpus(2), training_of(256));
  EXPECT_LT(fewer.memory({.data = 2}).rows, one / 4);
}

TEST(TableLayouts, NeedDevicesForServersUnlessMachinesHaveThem) {
  auto cluster = cluster_of_cpus(4);
  const LayoutPlanner among(model_with_tables(), cluster, training_of(64));
  EXPECT_FALSE(among.refusal({.data = 3, .servers = 1}));
  EXPECT_TRUE(among.refusal({.data = 4, .servers = 1}));
  cluster.server_memory_bytes = 1e10;
  const LayoutPlanner besides(model_with_tables(), cluster, training_of(64));
  EXPECT_FALSE(besides.refusal({.data = 4, .servers = 1}));
  EXPECT_TRUE(besides.refusal({.data = 3, .servers = 1}));
}

TEST(TableLayouts, RefuseWhatParameterServersDoNot) {
  const LayoutPlanner planner(model_with_tables(), cluster_of_cpus(4), training_of(64));
  EXPECT_THAT(*planner.refusal({.shard = 4, .stage = 1}), testing::HasSubstr("sparse"));
  EXPECT_THAT(*planner.refusal({.data = 2, .micro_batches = 2, .servers = 2}),
              testing::HasSubstr("one step"));
  EXPECT_THAT(*planner.refusal({.shard = 2, .servers = 2}), testing::HasSubstr("along data only"));
  EXPECT_THROW(planner.memory({.data = 4, .servers = 1}), InvalidArgument);
  auto plain = model_with_tables();
  plain.tables.clear();
  const LayoutPlanner without(plain, cluster_of_cpus(4), training_of(64));
  EXPECT_THAT(*without.refusal({.data = 3, .servers = 1}), testing::HasSubstr("no tables"));
}

TEST(TableLayouts, FitOnServersIfNoDeviceHasRoomForTheTable) {
  auto cluster = cluster_of_cpus(4);
  cluster.memory_bytes = 1.5 * bytes_of_tables();  // Their state is as large.
  const LayoutPlanner planner(model_with_tables(), cluster, training_of(64));
  const auto search = search_layouts(planner, {.choices = choices_with_tables()});
  ASSERT_FALSE(search.ranked.empty());
  for (const auto& choice : search.ranked) EXPECT_EQ(choice.layout.servers, 2);
  ASSERT_FALSE(search.unfit.empty());
  EXPECT_EQ(search.unfit.front().change->servers, 2);
  EXPECT_EQ(nearest_that_fits(planner, {.data = 4}, choices_with_tables())->servers, 2);
}

TEST(TableLayouts, CheckTheServersOfMachinesBesidesDevices) {
  auto cluster = cluster_of_cpus(4);
  cluster.devices = 8;
  cluster.between = {1e-5, 1e9};
  cluster.memory_bytes = 0.5 * bytes_of_tables();
  cluster.server_memory_bytes = 1.2 * bytes_of_tables();
  const LayoutPlanner planner(model_with_tables(), cluster, training_of(64));
  const auto search = search_layouts(planner, {.choices = choices_with_tables()});
  ASSERT_FALSE(search.ranked.empty());
  for (const auto& choice : search.ranked) {
    EXPECT_GE(choice.layout.servers, 2);
    EXPECT_EQ(choice.layout.data, 8);
  }
}

TEST(TableLayouts, TakeAsLongAsTheirRowsAreOnTheirWay) {
  auto cluster = cluster_of_cpus(4);
  cluster.within.latency_seconds = 0;
  const LayoutPlanner planner(model_with_tables(), cluster, training_of(4000));
  // Each of three workers reads and sends its rows and the whole network, from one server.
  const PlannedLayout served{.data = 3, .servers = 1};
  const double examples = std::ceil(4000.0 / 3);
  double bytes = 4 * kWeights;
  for (const double columns : {kColumns, 1.0})
    bytes += PlannedTable{kRows, columns, kLookups}.distinct_rows(examples) * (4 * columns + 8);
  const double on_the_way = 2 * 3 * bytes / cluster.within.bytes_per_second;
  const double copied = 4 * 3 * bytes / cluster.bytes_per_second;
  EXPECT_NEAR(planner.time(served).rows, on_the_way + copied, 1e-9);
  EXPECT_EQ(planner.time(served).sums, 0);
  // More servers carry less each.
  EXPECT_LT(planner.time({.data = 2, .servers = 2}).rows, planner.time({.data = 3, .servers = 1}).rows);
  const auto alone = LayoutPlanner(model_with_tables(), cluster_of_cpus(1), training_of(4000)).time({});
  EXPECT_EQ(alone.rows, 0);
}

TEST(TableLayouts, SumNoWholeTablesOfReplicas) {
  const auto cluster = cluster_of_cpus(2);
  const auto sums = [&](const PlannedModel& model) {
    return LayoutPlanner(model, cluster, training_of(64)).time({.data = 2}).sums;
  };
  auto plain = model_with_tables();
  plain.tables.clear();
  EXPECT_EQ(sums(model_with_tables()), sums(plain));
}

TEST(TableLayouts, AreTriedOnEachReplicaAndWithServers) {
  const LayoutPlanner planner(model_with_tables(), cluster_of_cpus(8), training_of(64));
  std::set<std::pair<int64_t, int64_t>> tried;
  for_each_layout(planner, choices_with_tables(), [&](const PlannedLayout& layout) {
    EXPECT_TRUE(tried.insert({layout.servers, layout.data}).second);
  });
  EXPECT_EQ(tried, (std::set<std::pair<int64_t, int64_t>>{{0, 8}, {1, 7}, {2, 6}, {4, 4}}));
}

}  // namespace
}  // namespace lockstep
